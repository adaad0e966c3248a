"""RBF and Matérn kernels of many pairs of points, by one product of matrices, with their gradients.

    h = -1/2 gamma |x - z|^2 = gamma x.z - 1/2 gamma |x|^2 - 1/2 gamma |z|^2

With two more columns, X = [x, -1/2 gamma |x|^2, 1] and Z = [gamma z, 1, -1/2 gamma |z|^2], all h are the product X Z^T.
A common centre is taken off, as less cancels then. With W = dL/dh, they yield the row and column sums of W in

    dL/dx = gamma (W z - x rowsum(W)),    dL/dz = gamma (W^T x - z colsum(W)),    dL/dgamma = sum(W * h) / gamma
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_SIDE = 384  # of a tile: its values, and the points that they take, fit in the cache of a core


class Exponents(torch.autograd.Function):
    """h = -1/2 gamma |a - b|^2; with b = None between all points of a. The gradient keeps one copy of each side."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None, centre: Tensor, gamma: Tensor) -> Tensor:
        left = _with_columns(a, centre, gamma)
        right = left.clone() if b is None else _with_columns(b, centre, gamma)
        right[..., :-2] *= gamma
        right[..., -2:] = right[..., -2:].flip(-1)
        ctx.save_for_backward(gamma, left, right)
        ctx.symmetric = b is None
        # On some CPUs, batches of small products with a transposed right side take 30 times longer than the copy.
        h = left @ (right.mT if right.ndim == 2 else right.mT.contiguous())
        if b is None:  # rounding must not make a distance between a point and itself
            if torch.compiler.is_exporting():  # ONNX cannot write to a diagonal
                return h.masked_fill(torch.eye(h.shape[-1], dtype=torch.bool), 0.0)
            h.diagonal(dim1=-2, dim2=-1).zero_()
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor | None, ...]:
        gamma, left, right = ctx.saved_tensors
        need_a, need_b, _, need_gamma = ctx.needs_input_grad
        grad_a = grad_b = total = None
        if ctx.symmetric:  # each pair counts twice, once from either side
            w = w + w.mT
            w.diagonal(dim1=-2, dim2=-1).zero_()
        if (need_b or need_gamma) and not ctx.symmetric:
            to_b = w.mT @ left
            total = torch.linalg.vecdot(to_b, right).sum()
            grad_b = to_b[..., :-2].mul_(gamma).addcmul_(right[..., :-2], to_b[..., -1:], value=-1)
        if need_a or ctx.symmetric:
            to_a = w @ right
            total = torch.linalg.vecdot(to_a, left).sum() / 2 if ctx.symmetric else total
            grad_a = to_a[..., :-2].addcmul_(left[..., :-2], to_a[..., -2, None] * -gamma)
        if total is not None:  # of a gamma that has underflowed it is zero, not 0 / 0
            total = total / gamma.clamp_min(torch.finfo(gamma.dtype).tiny)
        return grad_a, grad_b, None, total


def _with_columns(
    points: Float[Tensor, "*batch n dim"], centre: Float[Tensor, " dim"] | float = 0.0, gamma: Tensor | float = 1.0
) -> Float[Tensor, "*batch n wide"]:
    """[x, -1/2 gamma |x|^2, 1]."""
    wide = points.new_ones(*points.shape[:-1], points.shape[-1] + 2)
    x = wide[..., :-2].copy_(points - centre)
    wide[..., -2] = torch.linalg.vecdot(x, x) * (-0.5 * gamma)
    return wide


class BlockSums(torch.autograd.Function):
    """Sums of the kernel over blocks of ``size`` consecutive rows of h, which may be overwritten; dk/dh is kept.

    The RBF (nu = None) is exp(h). A Matérn kernel is a polynomial times exp(-s), s = sqrt(2 nu) |x - z|: s^2 = -4 nu h.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, nu: float | None, size: int) -> Tensor:
        k, slope = _profile(h, nu, may_overwrite=size > 1)
        ctx.save_for_backward(slope)
        ctx.size = size
        return k if size == 1 else k.unflatten(-2, (-1, size)).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return (grad.unsqueeze(-2) * slope.unflatten(-2, (-1, ctx.size))).flatten(-3, -2), None, None


class TileSums(torch.autograd.Function):
    """Sums of the kernel over all pairs of ``s`` consecutive points of x and ``t`` of z, tile by tile.

    Distances are in lengthscales. With z = None, sums are between the points of x, and half of the tiles are enough. A
    tile of values stays in the cache from the product to the sum. The gradient makes it again, which takes less time
    than values of k_g take to memory and back.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor | None, nu: float | None, s: int, t: int) -> Tensor:
        left = _with_columns(x)
        right = left.clone() if z is None else _with_columns(z)
        right[:, -2:] = right[:, -2:].flip(-1)
        ctx.save_for_backward(left, right)
        ctx.nu, ctx.blocks, ctx.symmetric = nu, (s, t), z is None
        sums = x.new_empty(len(left) // s, len(right) // t)
        for tile, rows, columns in _tiles(sums.shape, s, t, ctx.symmetric):
            k, _ = _profile(left[rows] @ right[columns].mT, nu)
            sums[tile] = k.unflatten(0, (-1, s)).sum(1).unflatten(1, (-1, t)).sum(2)
            if ctx.symmetric:
                sums[tile[::-1]] = sums[tile].mT.clone()
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (left, right), (s, t) = ctx.saved_tensors, ctx.blocks
        to_left, to_right = torch.zeros_like(left), torch.zeros_like(right)
        for tile, rows, columns in _tiles(grad.shape, s, t, ctx.symmetric):
            _, w = _profile(left[rows] @ right[columns].mT, ctx.nu)
            both = ctx.symmetric and rows != columns  # the tile stands for its mirror image, too
            slope = grad[tile] + grad[tile[::-1]].mT if both else grad[tile]
            w.unflatten(0, (-1, s)).mul_(slope.repeat_interleave(t, 1)[:, None])
            to_left[rows].addmm_(w, right[columns])
            to_right[columns].addmm_(w.mT, left[rows])
        to_x = to_left[:, :-2].addcmul_(left[:, :-2], to_left[:, -2, None], value=-1)
        to_z = to_right[:, :-2].addcmul_(right[:, :-2], to_right[:, -1, None], value=-1)
        return *((to_x + to_z, None) if ctx.symmetric else (to_x, to_z)), None, None, None


def _tiles(shape: torch.Size, s: int, t: int, symmetric: bool) -> Iterator[tuple[tuple[slice, slice], slice, slice]]:
    """Tiles of sums of blocks of ``s x t`` pairs: which sums, and which points of either side they take."""
    high, wide = max(1, _SIDE // s), max(1, _SIDE // t)
    for i in range(0, shape[0], high):
        for j in range(0, i + 1 if symmetric else shape[1], wide):
            yield (slice(i, i + high), slice(j, j + wide)), slice(i * s, (i + high) * s), slice(j * t, (j + wide) * t)


def _profile(h: Tensor, nu: float | None, may_overwrite: bool = True) -> tuple[Tensor, Tensor]:
    """The kernel and its slope dk/dh of h, which nobody else reads if it may be overwritten."""
    if nu is None:
        k = h.exp_() if may_overwrite else torch.exp(h)
        return k, k
    s = (h * (-4 * nu)).clamp_min_(0.0).sqrt_()
    decay = torch.exp(-s)
    if nu == 0.5:
        return decay, decay / s.clamp_min(torch.finfo(h.dtype).eps)
    if nu == 1.5:
        return (s + 1) * decay, 3 * decay
    return (s * (s / 3 + 1) + 1) * decay, (s + 1) * decay * (5 / 3)
