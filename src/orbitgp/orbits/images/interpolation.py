"""Bilinear interpolation on a CPU, where points are an expansion in functions of the pixel.

Between four pixels an image is v(p, q) = a + b p + c q + d p q, with p and q the place within the cell. With a table of a, b, c
and d for every cell, interpolation is a look-up and a few multiplications, and so are the slopes dv/dp and dv/dq. These are
all that the backward pass needs: slope times gradient, and a product with the functions of the pixel.

Compiled (:mod:`orbitgp._native`), all of that is one pass over the points, forward and backward, and takes a third of the time
of ``grid_sample``. In torch, images are done some at a time, which bounds the memory. Forward and backward that takes two
thirds of the time of ``grid_sample``. Where all images share their points, as in predictions, these are found once, and it
takes 0.7 of the time forward, too. Everywhere else ``grid_sample`` is as good or better, and serves
(:mod:`orbitgp.orbits.images.warps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp import _native
from orbitgp.orbits.images.points import Expansion, Points

_BORDER = 2  # cells of zeros beyond the outermost that touch the image: points outside are moved there
_TERMS = 16  # functions of the pixel: with more, points are most of the work, and products of large matrices make them faster
_AT_ONCE = 2**20  # points: fewer at once would cost more calls than they save misses of the cache


def pays(points: Points, images: Tensor) -> TypeGuard[Expansion]:
    """Whether to take :func:`interpolate`: compiled, or with a gradient to come, but none of images, or with shared points."""
    if not isinstance(points, Expansion) or images.device.type != "cpu":
        return False
    faster = _learns(points) or len(points.cx) == len(points.cy) == 1
    if not (_compiled(points, images) or (faster and not images.requires_grad)):
        return False
    return bool(points.cx.isfinite().all() and points.cy.isfinite().all())  # only numbers can be looked up


def interpolate(
    images: Float[Tensor, "rows channels height width"], points: Expansion, samples: int
) -> Float[Tensor, "rows samples channels height width"]:
    """Each image at all its points; zero outside."""
    rows, _, height, width = images.shape
    # From pixels around the centre to cells from the corner of the border: a change of the constant function's coefficient.
    cx, cy = (points.moved((n - 1) / 2 + _BORDER, c) for n, c in ((width, points.cx), (height, points.cy)))
    learns = _learns(points) or (torch.is_grad_enabled() and images.requires_grad)
    shape = (rows if learns else max(len(cx), len(cy)), samples, cx.shape[-1])
    cx, cy = cx.expand(shape), cy.expand(shape)
    if _compiled(points, images):
        found: Tensor = _Compiled.apply(images, cx, cy, points.basis)
    else:
        found = _Interpolate.apply(images, cx, cy, points.basis, learns)
    return found


def _compiled(points: Expansion, images: Tensor) -> bool:
    return len(points.basis) <= _TERMS and _native.serves(images, points.cx, points.cy, points.basis)


def _learns(points: Expansion) -> bool:
    return torch.is_grad_enabled() and (points.cx.requires_grad or points.cy.requires_grad)


class _Compiled(torch.autograd.Function):
    """One pass over the points; the backward pass makes the slopes again, which costs less than to keep them."""

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


class _Interpolate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, cx: Tensor, cy: Tensor, basis: Tensor, learns: bool) -> Tensor:
        rows, channels, height, width = images.shape
        samples, pixels = cx.shape[1], height * width
        tables, across = _cells(images), width + _BORDER + 1
        out = images.new_empty(rows, samples, channels, pixels)
        slopes = images.new_empty(2, rows, samples, channels, pixels) if learns else None
        for part in _parts(rows, samples * pixels):
            if part.start == 0 or len(cx) == rows:
                p = (cx[part] @ basis).clamp_(0, across - 1)
                q = (cy[part] @ basis).clamp_(0, height + _BORDER)
                # By way of int32: straight to int64 takes twice as long.
                cell = torch.add(p.int(), q.int(), alpha=across).long().flatten(1)
                p, q = p.frac_(), q.frac_()
            table = tables[part]
            index = cell.expand(len(table), -1)
            for channel in range(channels):
                a, b, c, d = (t.unflatten(1, p.shape[1:]) for t in _look_up(table[:, channel], index))
                if slopes is None:
                    b = torch.addcmul(b, q, d)
                else:
                    b = torch.addcmul(b, q, d, out=slopes[0, part, :, channel])
                    torch.addcmul(c, p, d, out=slopes[1, part, :, channel])
                torch.addcmul(torch.addcmul(a, q, c), p, b, out=out[part, :, channel])
        if slopes is not None:
            ctx.save_for_backward(slopes, basis)
        return out.view(rows, samples, channels, height, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slopes, basis = ctx.saved_tensors
        _, rows, samples, channels, pixels = slopes.shape
        grad = grad.reshape(rows, samples, channels, pixels)
        found = grad.new_empty(2, rows, samples, len(basis))
        for part in _parts(rows, samples * channels * pixels):
            moved = slopes[:, part] * grad[part]
            found[:, part] = (moved[:, :, :, 0] if channels == 1 else moved.sum(3)) @ basis.mT
        return None, found[0], found[1], None, None


def _cells(images: Float[Tensor, "rows channels height width"]) -> Float[Tensor, "rows channels cells 4"]:
    """a, b, c, d of every cell between four pixels, with two more rows and columns of zeros around the image."""
    v = F.pad(images, [_BORDER] * 4)
    a, right, below = v[..., :-1, :-1], v[..., :-1, 1:], v[..., 1:, :-1]
    return torch.stack([a, right - a, below - a, v[..., 1:, 1:] - right - below + a], -1).flatten(-3, -2)


def _look_up(table: Float[Tensor, "rows cells 4"], index: Int[Tensor, "rows points"]) -> tuple[Tensor, ...]:
    """a, b, c, d at these cells. In single precision the four lie in 16 bytes, and are looked up as one number."""
    if table.dtype != torch.float32:
        return tuple(t.gather(1, index) for t in table.unbind(-1))
    found = torch.view_as_complex(table.view(torch.float64)).gather(1, index)
    return torch.view_as_real(found).view(torch.float32).unbind(-1)


def _parts(rows: int, points_per_row: int) -> Iterator[slice]:
    most = max(1, _AT_ONCE // max(1, points_per_row))
    step = -(-rows // -(-rows // most)) if rows else 1  # as few parts as can be, all of a size
    for start in range(0, rows, step):
        yield slice(start, start + step)
