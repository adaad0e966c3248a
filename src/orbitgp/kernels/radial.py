"""RBF and Matérn kernels of many pairs of points, by one product of matrices, with their gradients.

    h = -1/2 gamma |x - z|^2 = gamma x.z - 1/2 gamma |x|^2 - 1/2 gamma |z|^2

With two more columns, X = [x, -1/2 gamma |x|^2, 1] and Z = [gamma z, 1, -1/2 gamma |z|^2], all h are the product X Z^T.
A common centre is taken off, as less cancels then. With W = dL/dh, they yield the row and column sums of W in

    dL/dx = gamma (W z - x rowsum(W)),    dL/dz = gamma (W^T x - z colsum(W)),    dL/dgamma = sum(W * h) / gamma
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


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
    points: Float[Tensor, "*batch n dim"], centre: Float[Tensor, " dim"], gamma: Float[Tensor, ""]
) -> Float[Tensor, "*batch n wide"]:
    """[x, -1/2 gamma |x|^2, 1]."""
    wide = points.new_ones(*points.shape[:-1], points.shape[-1] + 2)
    x = torch.sub(points, centre, out=wide[..., :-2])
    wide[..., -2] = torch.linalg.vecdot(x, x) * (-0.5 * gamma)
    return wide


class BlockSums(torch.autograd.Function):
    """Sums of the kernel over blocks of ``size`` consecutive rows of h, which may be overwritten; dk/dh is kept.

    The RBF (nu = None) is exp(h). A Matérn kernel is a polynomial times exp(-s), s = sqrt(2 nu) |x - z|: s^2 = -4 nu h.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, nu: float | None, size: int) -> Tensor:
        if nu is None:
            k = slope = torch.exp(h) if size == 1 else h.exp_()  # nobody else reads h
        else:
            s = (h * (-4 * nu)).clamp_min_(0.0).sqrt_()
            decay = torch.exp(-s)
            if nu == 0.5:
                k, slope = decay, decay / s.clamp_min(torch.finfo(h.dtype).eps)
            elif nu == 1.5:
                k, slope = (s + 1) * decay, 3 * decay
            else:
                k, slope = (s * (s / 3 + 1) + 1) * decay, (s + 1) * decay * (5 / 3)
        ctx.save_for_backward(slope)
        ctx.size = size
        return k if size == 1 else k.unflatten(-2, (-1, size)).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return (grad.unsqueeze(-2) * slope.unflatten(-2, (-1, ctx.size))).flatten(-3, -2), None, None
