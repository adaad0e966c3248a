"""Rotation and affine maps: signs, ranges, units, order of the factors."""

from __future__ import annotations

from collections.abc import Callable
from math import degrees, exp, log, pi
from typing import Any

import pytest
import torch

from orbitgp.orbits import Affine, Rotation, Scale, Shear, Translation

NAMES = ("angle", "scale_x", "scale_y", "shear", "shift_x", "shift_y")


def dot(x: int, y: int) -> torch.Tensor:
    """A bright pixel, x to the right and y down from the centre of 15 x 15."""
    image = torch.zeros(1, 15, 15)
    image[0, 7 + y, 7 + x] = 1.0
    return image


def where(image: torch.Tensor) -> tuple[float, float]:
    """Centre of mass, from the centre of the image."""
    line = torch.arange(15.0) - 7
    return ((image * line).sum() / image.sum()).item(), ((image * line[:, None]).sum() / image.sum()).item()


def test_rotation_by_a_quarter_turn_is_rot90() -> None:
    for shape in ((8, 8), (9, 9), (3, 6, 6)):
        x = torch.rand(2, *shape, dtype=torch.float64)
        xa = (
            Rotation(90)
            .double()
            .transform(x, torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64).view(1, 3, 1).expand(2, 3, 1))
        )
        torch.testing.assert_close(xa[:, 0], x.rot90(1, (-2, -1)), rtol=0, atol=1e-6)  # u = 1: counter-clockwise
        torch.testing.assert_close(xa[:, 1], x.rot90(-1, (-2, -1)), rtol=0, atol=1e-6)
        assert torch.equal(xa[:, 2], x)


def test_a_positive_angle_is_counter_clockwise() -> None:
    xa = Rotation(90).transform(dot(4, 0), torch.ones(1, 1, 1))
    x, y = where(xa[0, 0])
    assert abs(x) < 1e-3
    assert abs(y + 4) < 1e-3  # y points down: above the centre


def test_rotation_angles_are_uniform_within_alpha() -> None:
    u = torch.rand(1, 4000, 1)
    xa = Rotation(30).transform(dot(6, 0), u)[0].detach()
    angles = torch.tensor([degrees(torch.atan2(torch.tensor(-y), torch.tensor(x))) for x, y in map(where, xa)])
    torch.testing.assert_close(angles, 30 * (2 * u[0, :, 0] - 1), rtol=0, atol=1.5)


@pytest.mark.parametrize(
    ("free", "alpha"), [(pi / 4, 45), (-pi / 4, 45), (pi, 180), (pi + 0.2, 180 - degrees(0.2)), (2 * pi, 0)]
)
def test_rotation_is_folded_at_both_ends(free: float, alpha: float) -> None:
    rotation = Rotation()
    rotation.angle.data.fill_(free)
    value = rotation.describe()["degrees"]
    assert isinstance(value, float)
    assert abs(value - alpha) < 1e-4


def test_rotation_has_a_gradient_everywhere_and_stays_in_its_range() -> None:
    x = torch.rand(3, 8, 8)
    for start in (5.0, 45.0, 179.0, 180.0):
        rotation = Rotation(start)
        rotation.sample(x, 8, generator=torch.Generator().manual_seed(1)).points.square().mean().backward()
        assert rotation.angle.grad.abs() > 1e-6
        rotation.angle.data += 10.0
        assert 0 <= rotation.describe()["degrees"] <= 180


def test_a_full_turn_and_just_beyond_are_neighbours() -> None:
    x, u = torch.rand(1, 9, 9), torch.rand(1, 6, 1)
    before, after = Rotation(), Rotation()
    before.angle.data.fill_(pi - 1e-3)
    after.angle.data.fill_(pi + 1e-3)
    torch.testing.assert_close(before.transform(x, u), after.transform(x, u), atol=1e-4, rtol=1e-4)


def single(name: str, value: float) -> Affine:
    return Affine(**{**dict.fromkeys(NAMES), name: (value, value)}, frozen=(name,))


@pytest.mark.parametrize(
    ("name", "value", "start", "end"),
    [
        ("angle", 90, (4, 0), (0, -4)),
        ("scale_x", 2, (3, 2), (6, 2)),
        ("scale_y", 2, (3, 2), (3, 4)),
        ("shear", 1, (0, 3), (3, 3)),
        ("shear", 1, (0, -3), (-3, -3)),
        ("shift_x", 3, (0, 0), (3, 0)),
        ("shift_y", 3, (0, 0), (0, 3)),
    ],
)
def test_signs_are_those_of_what_one_sees(name: str, value: int, start: tuple[int, int], end: tuple[int, int]) -> None:
    orbit = single(name, value)
    assert orbit.draws_for(torch.Size((15, 15))) == 1
    xa = orbit.transform(dot(*start), torch.rand(1, 1, 1))[0, 0]
    assert where(xa) == pytest.approx(end, abs=1e-3)


def test_affine_is_scale_then_shear_then_rotation_then_translation() -> None:
    x = torch.rand(2, 12, 12)
    u = torch.rand(2, 5, 6)
    whole = Affine(20, 1.3, 1.2, 0.3, 2, 1.5)
    others = {name: [n for n in NAMES if n not in name] for name in (("scale_x", "scale_y"), ("angle",))}
    scale = Affine(scale_x=1.3, scale_y=1.2, **dict.fromkeys(others["scale_x", "scale_y"]))
    turn = Affine(angle=20, **dict.fromkeys(others["angle",]))
    parts = scale * Shear(0.3) * turn * Translation(2, 1.5)
    order = u[..., [1, 2, 3, 0, 4, 5]]
    torch.testing.assert_close(whole.transform(x, u), parts.transform(x, order), rtol=1e-4, atol=1e-5)


def test_scale_is_the_same_along_both_axes() -> None:
    x, u = torch.rand(2, 9, 9), torch.rand(2, 3, 1)
    both = Affine(scale_x=1.5, scale_y=1.5, angle=None, shear=None, shift_x=None, shift_y=None)
    torch.testing.assert_close(Scale(1.5).transform(x, u), both.transform(x, u.expand(-1, -1, 2)))


def test_ranges_cannot_cross_and_every_start_has_a_gradient() -> None:
    x, orbit = torch.rand(4, 10, 10), Affine()
    orbit.sample(x, 16).points.square().sum().backward()
    for p in orbit.parameters():
        assert p.grad.abs() > 0
    before = orbit.describe().to_dict()
    with torch.no_grad():
        for interval in orbit.ranges.values():
            interval.half_width.neg_()
    after = orbit.describe().to_dict()
    assert before == after  # the same density
    assert all(low <= high for low, high in after.values())


def test_the_density_does_not_depend_on_the_sign_of_the_half_width() -> None:
    x, u = torch.rand(2, 8, 8), torch.rand(2, 4, 2)
    one, two = Translation(1, 2), Translation(1, 2)
    with torch.no_grad():
        for interval in two.ranges.values():
            interval.half_width.neg_()
    torch.testing.assert_close(one.transform(x, u), two.transform(x, 1 - u))


def test_describe_speaks_the_units_of_the_constructor() -> None:
    orbit = Affine(angle=(-10, 20), scale_x=(0.9, 1.3), scale_y=1.25, shear=0.2, shift_x=(-1, 2), shift_y=3)
    described = orbit.describe()
    expected = {
        "angle": (-10, 20),
        "scale_x": (0.9, 1.3),
        "scale_y": (0.8, 1.25),
        "shear": (-0.2, 0.2),
        "shift_x": (-1, 2),
        "shift_y": (-3, 3),
    }
    for name, ends in expected.items():
        assert described[name] == pytest.approx(ends, rel=1e-5)
    again = Affine(**described).describe()
    assert all(again[name] == pytest.approx(described[name], rel=1e-5) for name in NAMES)
    lines = str(described).splitlines()
    assert lines[0] == "Affine"
    assert lines[1].split() == ["angle", "−10°", "…", "+20°"]
    assert lines[2].split() == ["scale_x", "×0.90", "…", "×1.30"]
    assert lines[5].split() == ["shift_x", "−1.0", "…", "+2.0", "px"]


def test_parameters_live_in_units_for_one_learning_rate() -> None:
    parameters = {
        name: p.item() for name, p in Affine(8.6, 1.16, 1.16, 0.15, 1.5, 1.5).named_parameters() if "half" in name
    }
    assert parameters["ranges.angle.half_width"] == pytest.approx(8.6 * pi / 180)
    assert parameters["ranges.scale_x.half_width"] == pytest.approx(log(1.16))
    assert parameters["ranges.shift_x.half_width"] == pytest.approx(0.15)
    assert all(0.1 < value < 0.2 for value in parameters.values())


def test_frozen_and_left_out_by_name() -> None:
    orbit = Affine(frozen=("angle", "shear"), scale_x=None)
    assert list(orbit.ranges) == ["angle", "scale_y", "shear", "shift_x", "shift_y"]
    assert orbit.draws_for(torch.Size((8, 8))) == 5
    assert {name for name, interval in orbit.ranges.items() if interval.half_width.requires_grad} == {
        "scale_y",
        "shift_x",
        "shift_y",
    }
    assert "scale_x" not in Affine(scale_x=None).describe()
    # What is left out does nothing.
    x, u = torch.rand(2, 8, 8), torch.rand(2, 3, 6)
    narrow = Affine(scale_x=(1.0, 1.0), frozen=("scale_x",))
    torch.testing.assert_close(narrow.transform(x, u), Affine(scale_x=None).transform(x, u[..., [0, 2, 3, 4, 5]]))


def test_scales_are_uniform_in_the_logarithm() -> None:
    u = torch.tensor([0.0, 0.25, 1.0]).view(1, 3, 1)
    drawn = Scale((0.5, 2.0)).ranges["scale"](u).flatten()
    assert [exp(v) for v in drawn.tolist()] == pytest.approx([0.5, 2**-0.5, 2.0], rel=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotation(0), "gradient of the angle vanishes"),
        (lambda: Rotation(200), "between 0 and 180"),
        (lambda: Rotation(float("nan")), "between 0 and 180"),
        (lambda: Affine(angle=0), "width zero"),
        (lambda: Affine(shear=-0.1), "positive half-width"),
        (lambda: Affine(shift_x=(2, 1)), "low <= high"),
        (lambda: Affine(shift_x=(0, float("inf"))), "finite"),
        (lambda: Affine(scale_x=0.15), "scale_x must be a factor"),
        (lambda: Affine(scale_x=(-1, 1)), "scale_x must be a factor"),
        (lambda: Affine(frozen=("rotation",)), "no parameter 'rotation'"),
        (lambda: Affine(frozen=("size",)), "no parameter 'size'"),
        (lambda: Affine(**dict.fromkeys(NAMES)), "nothing left"),
        (lambda: Translation(None, None), "nothing left"),
    ],
)
def test_bad_input_in_one_sentence(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_a_frozen_orbit_may_have_width_zero() -> None:
    assert Rotation(0, learn=False).describe()["degrees"] == 0
    assert Affine(angle=0, frozen=("angle",)).describe()["angle"] == (0, 0)
