"""Learned weights: probabilities between absent and a full symmetry, for any finite orbit and for products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from orbitgp.orbits import Flip, Permutation, Rotate90, Rotation, SignChange, Weighted


def test_weights_are_probabilities_between_none_and_equal() -> None:
    orbit = Weighted(Rotate90(), weight=0.1)
    assert orbit.weights().tolist() == pytest.approx([0.7, 0.1, 0.1, 0.1])
    assert orbit.describe()["weight"] == pytest.approx(0.1)
    with torch.no_grad():
        for root, expected in ((0.0, [1, 0, 0, 0]), (1.0, [0.25] * 4), (-1.0, [0.25] * 4), (2.0, [1, 0, 0, 0])):
            orbit.root_share.fill_(root)
            assert orbit.weights().tolist() == pytest.approx(expected)
    assert Weighted(Flip()).describe()["weight"] == pytest.approx(0.25)
    torch.testing.assert_close(Weighted(Flip(), 0.5).weights(), torch.full((2,), 0.5, dtype=torch.float64))


def test_each_element_and_each_generator_may_have_its_own() -> None:
    each = Weighted(Permutation.cyclic(3), each=True)
    with torch.no_grad():
        each.root_share.copy_(torch.tensor([0.5, 1.0]))
    assert each.weights().tolist() == pytest.approx([4 / 9, 1 / 9, 4 / 9])
    assert list(each.describe()) == ["weight_1", "weight_2"]
    generators = Weighted(Permutation.swap(0, 1), 0.1) * SignChange(2) * Weighted(SignChange(3), 0.3)
    expected = [a * 0.5 * b for a in (0.9, 0.1) for _ in range(2) for b in (0.7, 0.3)]
    assert generators.weights().tolist() == pytest.approx(expected)
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert generators.elements(x)[0, 5].tolist() == [2, 1, 3, -4]
    assert list(generators.describe()) == ["weighted permutation.weight", "elements", "weighted signchange.weight"]


def test_weights_have_the_gradient_of_the_formula() -> None:
    orbit = Weighted(Permutation.cyclic(3), each=True)
    parameter = orbit.root_share

    def weights(root: Any) -> torch.Tensor:
        shares = torch.cat([torch.ones(1, dtype=torch.float64), root.square()])
        return shares / shares.sum()

    found = torch.autograd.grad(orbit.weights()[1], parameter)[0]
    step = 1e-6 * torch.eye(2, dtype=torch.float64)
    expected = torch.stack([(weights(parameter.data + s) - weights(parameter.data - s))[1] / 2e-6 for s in step])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted(Flip(), 0.6), "above 0 and be at most 1/2"),
        (lambda: Weighted(Rotation(30)), "a finite orbit of several elements without weights"),
        (lambda: Weighted(Weighted(Flip())), "without weights"),
        (lambda: Weighted(Flip()) * Rotation(30), "composed with finite orbits alone"),
        (lambda: Weighted(Permutation([(1, 0), (0, 1)])).check(torch.Size((2,))), "must be the identity for weights"),
    ],
)
def test_bad_input_in_one_sentence(make: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
