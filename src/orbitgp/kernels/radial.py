"""RBF and Matérn kernels of many pairs of points, by one product of matrices, with their gradients.

    h = -1/2 gamma |x - z|^2 = gamma x.z - 1/2 gamma |x|^2 - 1/2 gamma |z|^2

With two more columns, X = [x, -1/2 gamma |x|^2, 1] and Z = [gamma z, 1, -1/2 gamma |z|^2], all h are the product X Z^T. Points
are taken from a common centre, so that less cancels. Given W = dL/dh, the same columns yield the row and column sums of W in

    dL/dx = gamma (W z - x rowsum(W)),    dL/dz = gamma (W^T x - z colsum(W)),    dL/dgamma = sum(W * h) / gamma

On a GPU the products may run on its tensor cores, in TF32, which keeps eleven bits of each factor. That is too few for norms:
the bound would move by tens of nats. So each norm becomes three columns, each with so few digits that TF32 keeps them all. Then
only x.z is rounded, and the bound moves by less than a tenth of a nat in thousands, below its own Monte-Carlo noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_TF32 = ~0x1FFF  # the bits of a float32 that a TF32 keeps: sign, exponent and ten of the mantissa


class Exponents(torch.autograd.Function):
    """h = -1/2 gamma |a - b|^2; with b = None between all points of a."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None, centre: Tensor, gamma: Tensor, tensor_cores: bool) -> Tensor:
        dim = a.shape[-1]
        left = _with_columns(a, centre, gamma, tensor_cores)
        right = left.clone() if b is None else _with_columns(b, centre, gamma, tensor_cores)
        right[..., :dim] *= gamma
        right[..., dim:] = right[..., dim:].flip(-1)
        ctx.save_for_backward(gamma, left, right)
        ctx.dim, ctx.tensor_cores, ctx.symmetric = dim, tensor_cores, b is None
        with _precision(tensor_cores):
            # On some CPUs, batches of small products with a transposed right side take 30 times longer than the copy.
            h = left @ (right.mT if right.ndim == 2 else right.mT.contiguous())
        if b is None:  # rounding must not make a distance between a point and itself
            h.diagonal(dim1=-2, dim2=-1).zero_()
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, w: Tensor) -> tuple[Tensor | None, ...]:
        gamma, left, right = ctx.saved_tensors
        dim = ctx.dim
        need_a, need_b, _, need_gamma, _ = ctx.needs_input_grad
        grad_a = grad_b = total = None
        if ctx.symmetric:  # each pair counts twice, once from either side
            w = w + w.mT
            w.diagonal(dim1=-2, dim2=-1).zero_()
        with _precision(ctx.tensor_cores):
            to_a = w @ right if need_a or ctx.symmetric else None
            to_b = w.mT @ left if (need_b or need_gamma) and not ctx.symmetric else None
        if to_b is not None:
            total = torch.linalg.vecdot(to_b, right).sum()
            grad_b = to_b[..., :dim].mul_(gamma).addcmul_(right[..., :dim], to_b[..., -1:], value=-1)
        if to_a is not None:
            total = torch.linalg.vecdot(to_a, left).sum() / 2 if ctx.symmetric else total
            grad_a = to_a[..., :dim].addcmul_(left[..., :dim], to_a[..., dim, None] * -gamma)
        if total is not None:  # of a gamma that has underflowed it is zero, not 0 / 0
            total = total / gamma.clamp_min(torch.finfo(gamma.dtype).tiny)
        return grad_a, grad_b, None, total, None


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


def _with_columns(
    points: Float[Tensor, "*batch n dim"], centre: Float[Tensor, " dim"], gamma: Float[Tensor, ""], tensor_cores: bool
) -> Float[Tensor, "*batch n wide"]:
    """[x, -1/2 gamma |x|^2, 1]; for tensor cores with three columns for one, and rows that fill whole 16 bytes."""
    dim, copies = points.shape[-1], 3 if tensor_cores else 1
    wide = points.new_zeros(*points.shape[:-1], dim + (6 - (dim + 6) % -4 if tensor_cores else 2))
    x = torch.sub(points, centre, out=wide[..., :dim])
    norms = torch.linalg.vecdot(x, x) * (-0.5 * gamma)
    wide[..., dim : dim + copies] = _in_three(norms) if tensor_cores else norms[..., None]
    wide[..., -copies:] = 1.0
    return wide


def _in_three(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape 3"]:
    """Three numbers that sum to each of these, each with no more digits than TF32 keeps."""
    high = _in_tf32(values)
    middle = _in_tf32(values - high)
    return torch.stack([high, middle, values - high - middle], -1)


def _in_tf32(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return (values.float().view(torch.int32) & _TF32).view(torch.float32).to(values.dtype)


@contextmanager
def _precision(tensor_cores: bool) -> Iterator[None]:
    """Run products of float32 matrices in TF32 within this context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tensor_cores else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
