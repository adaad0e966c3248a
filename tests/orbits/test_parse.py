"""Orbits in words: parsed, never evaluated."""

from __future__ import annotations

import pytest
import torch

from orbitgp.cli.arguments import ORBIT_NAMES
from orbitgp.orbits import (
    Affine,
    Composition,
    Flip,
    Identity,
    LocalDeformation,
    Permutation,
    Rotation,
    Translation,
    WarpProduct,
)
from orbitgp.orbits.parse import NAMES, make_orbit, parse


def test_names_arguments_and_products() -> None:
    assert isinstance(make_orbit("none"), Identity)
    assert make_orbit("Rotation(30)").describe()["degrees"] == pytest.approx(30)
    assert make_orbit("translation(shift_y=None)").describe().to_dict().keys() == {"shift_x"}
    both = make_orbit("affine * deformation")
    assert isinstance(both, WarpProduct)
    assert [type(part) for part in both.parts] == [Affine, LocalDeformation]
    mixed = make_orbit("flip*(rotation*translation((-1, 2)))")
    assert isinstance(mixed, Composition)
    assert [type(part) for part in mixed.parts[1].parts] == [Rotation, Translation]
    assert isinstance(mixed.parts[0], Flip)
    assert mixed.describe()["shift_x"] == pytest.approx((-1, 2))
    assert isinstance(make_orbit("none*none"), Identity)


def test_swap_acts_within_vectors_of_any_length() -> None:
    orbit = make_orbit("swap(0, 2)")
    assert isinstance(orbit, Permutation)
    x = torch.arange(4.0)[None]
    assert orbit.elements(x).tolist() == [[[0, 1, 2, 3], [2, 1, 0, 3]]]


def test_an_orbit_is_checked_against_the_shape_of_the_inputs() -> None:
    make_orbit("swap(0, 2)", (4,))
    with pytest.raises(ValueError, match="vectors of at least 3 coordinates"):
        make_orbit("swap(0, 2)", (2,))
    with pytest.raises(ValueError, match="acts on images"):
        make_orbit("rotation", (64,))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rotatoin", "did you mean rotation"),
        ("frobnicate", "there are none, rotation"),
        ("rotation(", "cannot read the orbit"),
        ("", "cannot read the orbit"),
        ("rotation + flip", "not a product of names"),
        ("rotation(angle)", "must be numbers"),
        ("rotation(__import__('os'))", "must be numbers"),
        ("os.system('true')", "not a product of names"),
        ("(lambda: 1)()", "not a product of names"),
        ("rotation(**{})", "not a product of names"),
        ("rotation(1, 2, 3, 4)", "it takes init_degrees"),
        ("rotation(degrees=30)", "it takes init_degrees"),
        ("rotation(-3)", "between 0 and 180"),
        ("rotation('far')", "wrong kind"),
        ("rotation*" * 100 + "rotation", "at most 500 characters"),
        ("(" * 300, "cannot read the orbit"),
    ],
)
def test_bad_orbits(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_orbit(text)


def test_help_knows_the_same_names_without_loading_them() -> None:
    assert set(ORBIT_NAMES) == set(NAMES)


def test_columns_by_name() -> None:
    orbit = make_orbit("swap(left, 'right hand')", columns=("age", "left", "right hand"))
    x = torch.tensor([[1.0, 2.0, 3.0]])
    assert orbit.elements(x).tolist() == [[[1, 2, 3], [1, 3, 2]]]
    assert orbit.describe().title == "Permutation of left and right hand"
    signs = make_orbit("sign(left, 'right hand')", columns=("age", "left", "right hand"))
    assert signs.elements(x).tolist() == [[[1, 2, 3], [1, -2, -3]]]
    assert signs.describe().title == "SignChange of left and right hand"
    with pytest.raises(ValueError, match="no column 'top'; they are age, left"):
        make_orbit("swap(left, top)", columns=("age", "left"))
    with pytest.raises(ValueError, match="the inputs have no named columns, so count them from 0"):
        make_orbit("swap(left, right)")


def test_groups_of_columns_by_name() -> None:
    columns = ("age", "a", "b", "c")
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    turned = make_orbit("cyclic(a, b, c)", (4,), columns)
    assert turned.elements(x)[0].tolist() == [[1, 2, 3, 4], [1, 3, 4, 2], [1, 4, 2, 3]]
    assert turned.describe().title == "Permutation of a, b and c"
    sizes = {text: make_orbit(text, (4,), columns).size for text in ("permutations(4)", "dihedral(4)", "blocks(2, 2)")}
    assert sizes == {"permutations(4)": 24, "dihedral(4)": 8, "blocks(2, 2)": 2}
    assert make_orbit("permutations(a, c)*sign(age)", (4,), columns).size == 4
    with pytest.raises(ValueError, match="a number from 2 on, or different coordinates"):
        make_orbit("permutations(1)")


def test_weights_by_name() -> None:
    columns = ("a", "b", "c")
    orbit = make_orbit("weighted(swap(a, c), 0.2)*sign(b)", (3,), columns)
    assert orbit.weights().tolist() == pytest.approx([0.4, 0.4, 0.1, 0.1])
    fixed = make_orbit("weighted(swap(a, c), 0.3, learn=False)*sign(b)", (3,), columns)
    assert fixed.describe()["weight"] == pytest.approx(0.3)
    assert not any(p.requires_grad for p in fixed.parameters())
    assert str(parse("weighted(flip(True, True), each=True)")[0]) == "weighted(flip(True, True), each=True)"
    with pytest.raises(ValueError, match="Weighted needs a finite orbit of several elements"):
        make_orbit("weighted(weighted(flip))")  # one of the wrong class is told by its type, where types are checked
