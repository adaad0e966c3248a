"""Products that yield distances, against differences, and kernels of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from orbitgp.kernels import radial
from orbitgp.kernels.radial import BlockSums, Exponents, TileSums

SHAPES = {
    "points": ((5, 6), (7, 6)),
    "pairs of each datum": ((3, 5, 6), (3, 4, 6)),
    "with themselves": ((3, 5, 6), None),
}


def inputs(
    shape: str, dtype: Any = torch.float64
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (None if s is None else torch.randn(s, dtype=dtype, generator=generator) + 3.0 for s in SHAPES[shape])
    return a, b, torch.full((6,), 3.1, dtype=dtype), torch.tensor(0.3, dtype=dtype)


def result_and_gradients(function: Callable[..., Any], a: Any, b: Any, gamma: Any) -> list[Any]:
    ends = [t.detach().clone().requires_grad_() for t in (a, b, gamma) if t is not None]
    h = function(ends[0], None if b is None else ends[1], ends[-1])
    weights = torch.arange(h.numel(), dtype=h.dtype).sin().view_as(h)
    return [h, *torch.autograd.grad((h * weights).sum(), ends)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_differences(shape: str) -> None:
    a, b, centre, gamma = inputs(shape)

    def differences(a: Any, b: Any, gamma: Any) -> Any:
        others = a if b is None else b
        return -0.5 * gamma * (a[..., :, None, :] - others[..., None, :, :]).square().sum(-1)

    found = result_and_gradients(lambda a, b, gamma: Exponents.apply(a, b, centre, gamma), a, b, gamma)
    torch.testing.assert_close(found, result_and_gradients(differences, a, b, gamma), rtol=1e-9, atol=1e-9)


def test_only_what_is_learned_gets_a_gradient() -> None:
    a, b, centre, gamma = inputs("points")
    for wanted in (a, b, gamma):
        wanted.requires_grad_()
        Exponents.apply(a, b, centre, gamma).sum().backward()
        assert [t.grad is not None for t in (a, b, gamma)] == [t is wanted for t in (a, b, gamma)]
        wanted.requires_grad_(False).grad = None


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("nu", [None, 0.5, 1.5, 2.5])
def test_slopes_are_derivatives(nu: float | None, size: int) -> None:
    h = -torch.rand(6, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda h: BlockSums.apply(h.clone(), nu, size), (h,))


def test_sums_are_over_consecutive_rows() -> None:
    h = -torch.rand(6, 4)
    torch.testing.assert_close(
        BlockSums.apply(h.clone(), None, 3), torch.stack([h[:3].exp().sum(0), h[3:].exp().sum(0)])
    )


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_kernels_at_distance_zero_have_value_one_and_a_finite_slope(nu: float) -> None:
    h = torch.zeros(2, 2, requires_grad=True)
    k = BlockSums.apply(h, nu, 1)
    assert torch.equal(k, torch.ones(2, 2))
    assert torch.autograd.grad(k.sum(), h)[0].isfinite().all()


@pytest.mark.parametrize("side", [1, 5, 100])
@pytest.mark.parametrize("among_themselves", [False, True])
@pytest.mark.parametrize("nu", [None, 1.5, 2.5])
def test_sums_by_tiles_are_those_of_all_pairs(
    nu: float | None, among_themselves: bool, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large tiles are, with all gradients: a mirrored tile stands for two, with weights that differ."""
    monkeypatch.setattr(radial, "_SIDE", side)
    x, z = torch.randn(5 * 2, 4, dtype=torch.float64), torch.randn(4 * 3, 4, dtype=torch.float64)
    ends = [one.requires_grad_() for one in ((x,) if among_themselves else (x, z))]
    others, t = (x, 2) if among_themselves else (z, 3)
    h = -0.5 * (x[:, None] - others[None]).square().sum(-1)
    away = h - 1e-300  # where points are equal, the root of a square has no slope
    s = (-4 * (nu or 0) * away).sqrt()
    k = h.exp() if nu is None else ((s + 1) if nu == 1.5 else (s * s / 3 + s + 1)) * (-s).exp()
    written = k.unflatten(0, (-1, 2)).sum(1).unflatten(1, (-1, t)).sum(2)
    found = TileSums.apply(x, None if among_themselves else z, nu, 2, t)
    torch.testing.assert_close(found, written)
    weights = torch.randn(written.shape, dtype=torch.float64)
    gradients = [torch.autograd.grad((sums * weights).sum(), ends) for sums in (found, written)]
    torch.testing.assert_close(*gradients)


def test_sums_by_tiles_of_points_without_a_gradient() -> None:
    x, z = torch.rand(4, 3, dtype=torch.float64), torch.rand(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: TileSums.apply(x, z, None, 2, 3), (z,))
    assert torch.autograd.gradcheck(lambda z: TileSums.apply(z, x, None, 3, 2), (z,))
