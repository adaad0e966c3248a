"""RBF and Matérn kernels of many pairs of points, by one product of matrices.

    h = -1/2 gamma |x - z|^2 = gamma x.z - 1/2 gamma |x|^2 - 1/2 gamma |z|^2

With two more columns, X = [x, |x|^2, 1] and Z = gamma [z, -1/2, -1/2 |z|^2], all h are the product X Z^T, and their gradient
is a product for each side. Points are taken from a common centre, so that less cancels.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def exponents(
    a: Float[Tensor, "*batch n dim"],
    b: Float[Tensor, "*batch m dim"] | None,
    centre: Float[Tensor, " dim"],
    gamma: Float[Tensor, ""],
) -> Float[Tensor, "*batch n m"]:
    """The exponents -1/2 gamma |a - b|^2; with b = None between all points of a."""
    x = a - centre
    z = x if b is None else b - centre
    one = torch.ones_like(x[..., :1])
    left = torch.cat([x, torch.linalg.vecdot(x, x)[..., None], one], -1)
    right = gamma * torch.cat([z, torch.full_like(z[..., :1], -0.5), -0.5 * torch.linalg.vecdot(z, z)[..., None]], -1)
    # On some CPUs, batches of small products with a transposed right side take 30 times longer than the copy.
    h = left @ (right.mT if right.ndim == 2 else right.mT.contiguous())
    if b is None:  # rounding must not make a distance between a point and itself
        h.diagonal(dim1=-2, dim2=-1).zero_()
    return h


class BlockSums(torch.autograd.Function):
    """Sums of the kernel over blocks of ``size`` consecutive rows of h, which may be overwritten. Only the slope dk/dh is kept.

    The RBF (nu = None) is exp(h). A Matérn kernel is a polynomial times exp(-s) in s = sqrt(2 nu) |x - z|: s^2 = -4 nu h.
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
