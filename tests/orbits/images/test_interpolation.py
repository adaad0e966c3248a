"""Interpolation against a sum by hand: values and gradients, inside and outside of the image."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from orbitgp.orbits import Affine, LocalDeformation, Orbit, Rotation
from orbitgp.orbits.images.warps import Points

SHAPES = [(28, 28), (7, 12), (3, 9, 5), (1, 6, 6), (1, 1), (2, 1, 4)]
WARPS = {
    "rotation": lambda: Rotation(180),
    "affine": lambda: Affine(180, 4.0, 4.0, 1.0, 30.0, 30.0),  # far outside, too
    "affine * deformation": lambda: Affine() * LocalDeformation(3.0),
}


def by_hand(warp: Orbit, x: torch.Tensor, u: Any) -> torch.Tensor:
    """Each output pixel as the weighted sum of the four input pixels around its point; there are none outside of the
    image."""
    height, width = x.shape[-2:]
    p = warp.points(Points.pixels((height, width), x.dtype, x.device), u[:, :, None, None])
    column, row = p.x + (width - 1) / 2, p.y + (height - 1) / 2
    # The weight of pixel i at place v is max(0, 1 - |v - i|) along each axis.
    along_x = (1 - (column[..., None] - torch.arange(width)).abs()).clamp_min(0)
    along_y = (1 - (row[..., None] - torch.arange(height)).abs()).clamp_min(0)
    images = x.reshape(len(x), -1, height, width)
    return torch.einsum("nchw,nsijh,nsijw->nscij", images, along_y, along_x).reshape(*u.shape[:2], *x.shape[1:])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", WARPS)
def test_values_and_gradients_by_hand(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    warp, dtype = WARPS[name]().double(), torch.float64
    x = torch.rand(5, *shape, dtype=dtype, requires_grad=True)
    u = torch.rand(5, 6, warp.draws_for(x.shape[1:]), dtype=dtype)
    weight = torch.randn(5, 6, *shape, dtype=dtype)
    found, truth = warp.transform(x, u), by_hand(warp, x, u)
    assert found.shape == weight.shape
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-9)
    ends = [x, *warp.parameters()]
    gradients = (torch.autograd.grad((samples * weight).sum(), ends) for samples in (found, truth))
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)
    # In single precision the values only: a point that rounding moves into the next cell has another slope there.
    single = warp.float().transform(x.detach().float(), u.float())
    torch.testing.assert_close(single.double(), truth, rtol=0, atol=2e-4)


def test_the_same_without_gradients() -> None:
    warp, x, u = Affine(), torch.rand(3, 2, 8, 8), torch.rand(3, 4, 6)
    with torch.no_grad():
        plain = warp.transform(x, u)
    learned = warp.transform(x, u)
    assert learned.requires_grad
    assert not plain.requires_grad
    torch.testing.assert_close(plain, learned.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", WARPS)
def test_draws_that_all_images_share(name: str) -> None:
    warp, x = WARPS[name](), torch.rand(7, 2, 8, 8)
    u = torch.rand(3, warp.draws_for(x.shape[1:]))
    with torch.no_grad():
        shared, apart = warp.transform(x, u.expand(7, -1, -1)), warp.transform(x, u.repeat(7, 1, 1))
    torch.testing.assert_close(shared, apart, rtol=1e-4, atol=1e-4)
    learned = warp.transform(x, u.expand(7, -1, -1))
    torch.testing.assert_close(learned.detach(), apart, rtol=1e-4, atol=1e-4)
    ends = list(warp.parameters())
    found, truth = (torch.autograd.grad(s.sum(), ends) for s in (learned, warp.transform(x, u.repeat(7, 1, 1))))
    torch.testing.assert_close(found, truth, rtol=1e-3, atol=1e-3)


def test_zero_far_away() -> None:
    warp = Affine(None, None, None, None, (1e6, 2e6), (-3e9, 1e6), frozen=("shift_x",))
    assert not warp.transform(torch.ones(2, 5, 5), torch.rand(2, 3, 2)).any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_points_that_are_no_numbers_do_not_crash(bad: float) -> None:
    warp = Rotation(30)
    with torch.no_grad():
        warp.angle.fill_(bad)
    assert warp.transform(torch.rand(2, 5, 5), torch.rand(2, 3, 1)).shape == (2, 3, 5, 5)


def test_no_rows_and_no_samples() -> None:
    assert Rotation().transform(torch.rand(0, 5, 5), torch.rand(0, 3, 1)).shape == (0, 3, 5, 5)
    assert Rotation().transform(torch.rand(2, 5, 5), torch.rand(2, 0, 1)).shape == (2, 0, 5, 5)
