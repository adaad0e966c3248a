"""a = L^-1 k_u with L L^T = Kuu: the factorisation, the solve, and the gradient of both as one function."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp import _native


class Whiten(torch.autograd.Function):
    """Rows a = L^-1 k for L L^T = Kuu, as one function of Kuu and k.

    The gradient of the solve begins with L^-T, that of the factorisation goes on with L^T, and the two cancel: with C the lower
    triangle of sum(ga a^T), mirrored, the gradient of Kuu is -1/2 L^-T C L^-1. That saves a product of M x M matrices.

    The value needs all digits of float64, the gradient no more than the data have: it is computed in their ``dtype``. Only
    along Kuu itself, which is the kernel's variance, rounding would show: there the gradient is -1/2 sum(ga * a), and made so.

    With ``invert``, L^-1 is computed once and the rest are products: what a GPU likes better than four triangular solves.
    """

    @staticmethod
    def forward(ctx: Any, kuu: Tensor, k: Tensor, dtype: torch.dtype, invert: bool) -> Tensor:
        lower = cholesky(kuu)
        if invert:
            lower = inverse(lower)
        a = k @ lower.mT if invert else solve(lower, k)
        ctx.save_for_backward(kuu, lower, a)
        ctx.dtype, ctx.invert = dtype, invert
        return a

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kuu, lower, a = ctx.saved_tensors
        grad_kuu = grad_k = None
        lower, ga = lower.to(ctx.dtype), grad.to(ctx.dtype)

        def unwhiten(rows: Tensor) -> Tensor:
            """Times L^-1 from the right."""
            return rows @ lower if ctx.invert else torch.linalg.solve_triangular(lower, rows, upper=False, left=False)

        if ctx.needs_input_grad[0]:
            c = _mirrored(ga.mT @ a.to(ctx.dtype))
            # All three matrices are symmetric. The solves like columns one after the other, and everyone else rows.
            grad_kuu = unwhiten(unwhiten(c.mT).mT).mT.to(grad.dtype).mul_(-0.5)
            excess = torch.linalg.vecdot(grad_kuu.flatten(), kuu.flatten()) + 0.5 * torch.linalg.vecdot(grad, a).sum()
            grad_kuu.diagonal().sub_(excess / kuu.trace())
        if ctx.needs_input_grad[1]:
            grad_k = unwhiten(ga).to(grad.dtype)
        return grad_kuu, grad_k, None, None


def _mirrored(matrix: Float[Tensor, "size size"]) -> Float[Tensor, "size size"]:
    """The lower triangle on both sides; may overwrite the matrix."""
    if _native.serves(matrix):
        _native.mirror(matrix)
        return matrix
    return torch.tril(matrix) + torch.tril(matrix, -1).mT


def cholesky(kuu: Float[Tensor, "inducing inducing"]) -> Float[Tensor, "inducing inducing"]:
    """L with L L^T = Kuu. Where there is none, an error on a CPU, and NaN on a GPU: to ask, the host would have to wait for it.

    NaN goes on into the bound, which training looks at from time to time, and into predictions.
    """
    # Of a symmetric matrix the transpose is the same, and lies in memory as the factorisation wants it.
    factor, info = torch.linalg.cholesky_ex(kuu.mT, check_errors=kuu.device.type == "cpu")
    return factor if kuu.device.type == "cpu" else torch.where(info == 0, factor, torch.nan)


def inverse(factor: Float[Tensor, "inducing inducing"]) -> Float[Tensor, "inducing inducing"]:
    """L^-1: on a GPU, products with it take a fraction of the time of solves."""
    return torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype, device=factor.device), upper=False)


def solve(factor: Float[Tensor, "inducing inducing"], k: Float[Tensor, "rows inducing"]) -> Float[Tensor, "rows inducing"]:
    """L^-1 k for each row k."""
    return torch.linalg.solve_triangular(factor, k.mT, upper=False).mT
