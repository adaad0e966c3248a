"""Finite orbits: enumerated, closed, or drawn without replacement."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, permutations
from typing import Any

import pytest
import torch

from orbitgp.orbits import (
    ChannelPermutation,
    FiniteProduct,
    Flip,
    GaussianNoise,
    Identity,
    Pairing,
    Permutation,
    Rotate90,
    Shuffle,
    SignChange,
)


def test_identity() -> None:
    x = torch.rand(3, 4, 5)
    samples = Identity().sample(x, None)
    assert torch.equal(samples.points, x[:, None, None])
    assert samples.pairing == Pairing.exact()
    assert len(Identity().describe()) == 0


def test_flip_and_rotate90_elements() -> None:
    x = torch.rand(2, 3, 4, 4)
    turns = Rotate90().elements(x)
    for k in range(4):
        assert torch.equal(turns[:, k], x.rot90(k, (-2, -1)))
    both = Flip(horizontal=True, vertical=True).elements(x)
    found = {tuple(image.flatten().tolist()) for image in both[0]}
    assert found == {tuple(x[0].flip(d).flatten().tolist()) for d in ((), (-1,), (-2,), (-1, -2))}


def test_swap_is_the_toy_example() -> None:
    x = torch.tensor([[1.0, 2.0]])
    assert Permutation.swap(0, 1).elements(x)[0].tolist() == [[1, 2], [2, 1]]
    assert Permutation.swap(0, 2, dim=4).elements(torch.arange(4.0)[None])[0, 1].tolist() == [2, 1, 0, 3]


@pytest.mark.parametrize("length", [2, 5])
def test_a_swap_acts_within_vectors_of_any_length(length: int) -> None:
    orbit = Permutation.swap(0, 1)
    x = torch.rand(3, length)
    orbit.check(x.shape[1:])
    swapped = x[:, [1, 0, *range(2, length)]]
    assert torch.equal(orbit.elements(x), torch.stack([x, swapped], 1))
    index = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1]])
    assert torch.equal(orbit.select(x, index), orbit.elements(x)[torch.arange(3)[:, None], index])


def test_swaps_of_any_length_compose() -> None:
    x = torch.rand(2, 5)
    both = Permutation.swap(0, 1) * Permutation.swap(2, 4)
    both.check(x.shape[1:])
    expected = [x[:, [0, 1, 2, 3, 4]], x[:, [0, 1, 4, 3, 2]], x[:, [1, 0, 2, 3, 4]], x[:, [1, 0, 4, 3, 2]]]
    assert torch.equal(both.elements(x), torch.stack(expected, 1))
    noisy = Permutation.swap(1, 3) * GaussianNoise(0.1)
    assert noisy.sample(x, 4).points.shape == (2, 2, 4, 5)
    with pytest.raises(ValueError, match="at least 5 coordinates"):
        both.check(torch.Size((4,)))


def test_signs_change_together_or_each_on_its_own() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [-4.0, 0.0, 5.0]])
    assert SignChange(0, 2).elements(x).tolist() == [[[1, 2, 3], [-1, 2, -3]], [[-4, 0, 5], [4, 0, -5]]]
    each = (SignChange(0) * SignChange(2)).elements(x)[0].tolist()
    assert sorted(each) == [[-1, 2, -3], [-1, 2, 3], [1, 2, -3], [1, 2, 3]]
    assert SignChange(1, names=["tilt"]).describe().title == "SignChange of tilt"
    with pytest.raises(ValueError, match="vectors of at least 4 coordinates, but inputs have shape"):
        SignChange(3).check(x.shape[1:])
    with pytest.raises(ValueError, match="needs coordinates, counted from 0"):
        SignChange()


def test_closure_makes_the_group() -> None:
    transposition, cycle = (1, 0, 2), (1, 2, 0)
    group = Permutation([transposition, cycle], close=True)
    assert {tuple(row) for row in group.index.tolist()} == set(permutations(range(3)))
    assert Permutation([transposition, cycle]).size == 2
    assert Permutation([(1, 2, 3, 0)], close=True).size == 4


def test_groups_by_name() -> None:
    def rows(orbit: Permutation) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in orbit.index.tolist())

    assert rows(Permutation.all(3)) == sorted(permutations(range(3)))
    assert rows(Permutation.all(0, 2)) == [(0, 1, 2), (2, 1, 0)]
    assert rows(Permutation.cyclic(4)) == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]
    square = {
        (0, 1, 2, 3),
        (1, 2, 3, 0),
        (2, 3, 0, 1),
        (3, 0, 1, 2),
        (3, 2, 1, 0),
        (0, 3, 2, 1),
        (1, 0, 3, 2),
        (2, 1, 0, 3),
    }
    assert set(rows(Permutation.dihedral(4))) == square
    assert rows(Permutation.cyclic(1, 3)) == [(0, 1, 2, 3), (0, 3, 2, 1)]
    x = torch.arange(1.0, 8.0)[None]  # three points in the plane, and a number
    points = Permutation.blocks(3, 2).elements(x)[0].tolist()
    assert sorted(points) == sorted([*chain(*order), 7] for order in permutations([[1, 2], [3, 4], [5, 6]]))
    assert ChannelPermutation.cyclic(3).elements(torch.rand(2, 3, 8)).shape == (2, 3, 3, 8)


def test_many_items_are_drawn_uniformly_and_never_enumerated() -> None:
    orbit = Permutation.all(10)
    assert isinstance(orbit, Shuffle)
    assert orbit.shared_samples(torch.rand(2, 11), 64).points.shape == (2, 1, 64, 11)
    x = torch.tensor([[10.0, 0.0, 1.0, 2.0]]).expand(4000, 4)
    three = Shuffle([[1], [2], [3]])
    for sampler in ("iid", "qmc"):
        drawn = three.sample(x, 4, sampler=sampler, generator=torch.Generator().manual_seed(0)).points.reshape(-1, 4)
        assert (drawn[:, 0] == 10).all()
        codes, counts = torch.unique(drawn[:, 1:] @ torch.tensor([9.0, 3.0, 1.0]), return_counts=True)
        assert len(codes) == 6
        assert ((counts.double() - len(drawn) / 6) ** 2 / (len(drawn) / 6)).sum() < 21  # five degrees of freedom
    pairs = Permutation.blocks(9, 2).shared_samples(torch.arange(20.0)[None], 5).points[0, 0]
    assert (pairs[:, 1:18:2] - pairs[:, 0:18:2] == 1).all()  # the coordinates of an item stay together
    assert pairs[:, 18:].tolist() == [[18.0, 19.0]] * 5


def test_a_closed_orbit_is_strictly_invariant() -> None:
    group = Permutation([(1, 2, 0, 3), (0, 1, 3, 2)], close=True)
    x = torch.rand(1, 4, dtype=torch.float64)
    moved = x[:, [1, 2, 0, 3]]
    feature = group.elements(x).sin().cumsum(-1).prod(-1).mean(), group.elements(moved).sin().cumsum(-1).prod(-1).mean()
    torch.testing.assert_close(*feature)


def test_products_enumerate_every_pair_and_flatten() -> None:
    x = torch.rand(2, 5, 5)
    product = Flip() * Rotate90() * Flip(vertical=True, horizontal=False)
    assert isinstance(product, FiniteProduct)
    assert product.size == 16
    assert len(product.parts) == 3
    elements = (Flip() * Rotate90()).elements(x)
    assert torch.equal(elements[:, 5], x.flip(-1).rot90(1, (-2, -1)))  # the flip acts first
    assert isinstance(Identity() * Flip(), Flip)
    assert isinstance(Identity() * Identity(), Identity)


def test_without_replacement_draws_distinct_elements_evenly() -> None:
    orbit = Permutation(list(permutations(range(4))))
    x = torch.arange(4.0).expand(3000, 4)
    samples = orbit.sample(x, 5)
    assert samples.points.shape == (3000, 5, 1, 4)
    codes = (samples.points[:, :, 0] * torch.tensor([64.0, 16.0, 4.0, 1.0])).sum(-1)
    assert (codes.sort(dim=1).values.diff(dim=1) > 0).all()
    counts = torch.unique(codes, return_counts=True)[1].double()
    assert len(counts) == 24
    expected = 3000 * 5 / 24
    assert ((counts - expected) ** 2 / expected).sum() < 50  # 23 degrees of freedom


def test_weights_of_appendix_b() -> None:
    """off m (m-1) + diag m = 1 for a constant, and the diagonal has the share 1 / P that it has among all pairs."""
    for drawn, size in ((2, 5), (4, 9), (7, 8)):
        pairing = Pairing.without_replacement(drawn, size)
        assert pairing.off * drawn * (drawn - 1) + pairing.diag * drawn == pytest.approx(1.0)
        assert pairing.diag * drawn == pytest.approx(1 / size)


def test_the_double_sum_is_unbiased_and_the_naive_one_is_not() -> None:
    orbit = Permutation(list(permutations(range(3))))
    x = torch.tensor([[0.3, 1.1, -0.4]], dtype=torch.float64)
    a = orbit.elements(x)[0].sin().cumsum(-1).prod(-1)
    exact = torch.outer(a, a).mean()
    samples, pairing = orbit.sample(x.expand(20_000, 3), 3)
    values = samples[:, :, 0].sin().cumsum(-1).prod(-1)
    total, squares = values.sum(1) ** 2, values.square().sum(1)
    estimate = pairing.off * (total - squares) + pairing.diag * squares
    assert abs(estimate.mean() - exact) < 4 * estimate.std() / 20_000**0.5
    naive = total / 9
    assert abs(naive.mean() - exact) > 4 * naive.std() / 20_000**0.5


def test_prediction_uses_the_same_elements_for_every_row() -> None:
    orbit = Permutation(list(permutations(range(4))))
    x = torch.arange(4.0).expand(6, 4)
    points = orbit.shared_samples(x, 7).points
    assert points.shape == (6, 1, 7, 4)
    assert torch.equal(points, points[:1].expand_as(points))
    assert orbit.shared_samples(x, None).points.shape == (6, 1, 24, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Permutation([]), "at least one permutation"),
        (lambda: Permutation([(0, 0)]), "each of 0..1 once"),
        (lambda: Permutation.swap(1, 1), "two different coordinates"),
        (lambda: Permutation.cyclic(0, 0), "different coordinates, counted from 0, got"),
        (lambda: Permutation.blocks(1, 3), "at least 2 items"),
        (lambda: Shuffle([[0], [1, 2]]), "items of equally many coordinates"),
        (lambda: Permutation.all(8).check(torch.Size((5,))), "vectors of at least 8 coordinates"),
        (lambda: Flip(horizontal=False), "at least one of horizontal and vertical"),
        (lambda: Rotate90().check(torch.Size((4, 5))), "square images"),
        (lambda: Flip().check(torch.Size((16,))), "acts on images"),
        (lambda: Permutation.swap(0, 1, dim=2).check(torch.Size((3,))), "vectors of 2 coordinates"),
        (lambda: Permutation([(1, 0)]).elements(torch.rand(1, 3)), "vectors of 2 coordinates"),
        (lambda: Permutation.swap(0, 2).check(torch.Size((2,))), "vectors of at least 3 coordinates"),
        (lambda: Permutation.swap(0, 1).check(torch.Size((5, 5))), "vectors of at least 2 coordinates"),
        (
            lambda: Permutation([(0, 1), (1, 0), (0, 1)]).sample(torch.rand(2, 2), 1),
            "takes 2 to 2 of 3 elements, got 1",
        ),
    ],
)
def test_bad_input_in_one_sentence(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
