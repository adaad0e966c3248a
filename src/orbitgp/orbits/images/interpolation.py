"""Bilinear interpolation by the compiled loops: float32 images on a CPU, at points that expand in functions of the pixel.

Between four pixels an image is v(p, q) = a + b p + c q + d p q, with p and q the place within the cell. With a table of a, b, c
and d for every cell, interpolation is a look-up and a few multiplications, and so are the slopes dv/dp and dv/dq. The backward
pass needs only these: slope times gradient, and a product with the functions of the pixel.

Compiled (:mod:`orbitgp._native`), each direction is one pass over the points and takes a third of the time of ``grid_sample``.
``grid_sample`` serves everywhere else (:mod:`orbitgp.orbits.images.warps`).
"""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp import _native
from orbitgp.orbits.images.points import Expansion, Points

_BORDER = 2  # cells of zeros around those that touch the image: points outside are moved there


def serves(points: Points, images: Tensor) -> TypeGuard[Expansion]:
    """Whether :func:`interpolate` can take these. Its table has no entry for a point that is NaN or infinite."""
    return (
        isinstance(points, Expansion)
        and _native.serves(images, points.cx, points.cy, points.basis)
        and bool(points.cx.isfinite().all() and points.cy.isfinite().all())
    )


def interpolate(
    images: Float[Tensor, "rows channels height width"], points: Expansion, samples: int
) -> Float[Tensor, "rows samples channels height width"]:
    """Each image at all its points; zero outside."""
    rows, _, height, width = images.shape
    # From pixels around the centre to cells from the corner of the border: a change of the constant function's coefficient.
    cx, cy = (points.moved((n - 1) / 2 + _BORDER, c) for n, c in ((width, points.cx), (height, points.cy)))
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (images, cx, cy))
    shape = (rows if learns else max(len(cx), len(cy)), samples, cx.shape[-1])
    found: Tensor = _Interpolate.apply(images, cx.expand(shape), cy.expand(shape), points.basis)
    return found


class _Interpolate(torch.autograd.Function):
    """One pass over the points. The backward pass computes the slopes again, which costs less than keeping them."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, cx: Tensor, cy: Tensor, basis: Tensor) -> Tensor:
        ctx.save_for_backward(images, cx, cy, basis)
        return _native.interpolate(images, cx, cy, basis)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        images, cx, cy, basis = ctx.saved_tensors
        to_x, to_y, to_images = _native.interpolate_back(grad, images, cx, cy, basis, ctx.needs_input_grad[0])
        return to_images, to_x, to_y, None
