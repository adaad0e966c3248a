"""The unbiased estimators (section 4.4 and appendix B), and the block means that they are made from.

The bound needs two moments of q(f_n) for each datum, and both are expectations over the orbit:

    E f_n   = E_a h(x_a)                              one expectation: a plain average
    E f_n^2 = E_a E_a' [ h(x_a) h(x_a') + c(x_a, x_a') ]   two *independent* ones: a sum over pairs

with h the posterior mean of g and c its posterior covariance. Squaring an average is biased, because it pairs samples with
themselves. Samples come in blocks, with a :class:`~orbitgp.orbits.Pairing` that says how pairs of blocks are weighted; the
paper's estimator, its grouped form, sampling without replacement and exact enumeration differ in nothing else. Because
both sides of a pair factor over samples, only block *means* are needed: B of them for each datum instead of S.

Nothing is clamped: an estimate of a variance may be negative, and the bound, which is linear in it, stays unbiased.

Block means come in two types. :class:`KernelMeans` holds k_u as the kernel gives it. :class:`WhitenedMeans` holds a = L^-1 k_u
with L L^T = Kuu, which the moments of q(f) need, because q(v) = N(m, S) is whitened too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from orbitgp.kernels.cholesky import cholesky, cholesky_without_waiting
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits import Pairing


def pair_product(
    a: Float[Tensor, "rows blocks *#rest"], b: Float[Tensor, "rows blocks *#rest"], pairing: Pairing
) -> Float[Tensor, "rows ..."]:
    """Unbiased estimate of (E a) (E b), elementwise, from block means that share their samples.

    off * sum_{i != j} a_i b_j + diag * sum_i a_i b_i  =  off * (sum_i a_i)(sum_j b_j) + (diag - off) * sum_i a_i b_i
    """
    if pairing.blocks == 1:
        return pairing.diag * (a[:, 0] * b[:, 0])
    if pairing.two_groups:
        (a0, a1), (b0, b1) = a.unbind(1), b.unbind(1)
        return 2 * pairing.off * (a0 * a1) if a is b else pairing.off * (a0 * b1 + a1 * b0)
    same = (a * b).sum(1)
    return pairing.off * a.sum(1) * b.sum(1) + (pairing.diag - pairing.off) * same


def estimate(
    mean: Float[Tensor, "rows blocks latents"],
    variance: Float[Tensor, "rows anylatents"],
    pairing: Pairing,
    cross: bool = False,
) -> Moments:
    """Moments from the block means of h and the paired estimate of the variance (one column if shared by all outputs)."""
    first = mean.mean(1)
    second = pair_product(mean, mean, pairing) + variance
    if not cross:
        return Moments(first, second)
    outer = pair_product(mean[..., :, None], mean[..., None, :], pairing)
    # The rule is symmetric in expectation; symmetrise, so that E f_i f_j and E f_j f_i are one number.
    outer = 0.5 * (outer + outer.mT) + torch.diag_embed(variance.expand_as(second))
    return Moments(first, second, outer)


class KernelMeans(NamedTuple):
    """What the prior knows of a batch of orbit samples: block means of k_u and m_g, and the paired mean of k_g."""

    ku: Float[Tensor, "rows blocks inducing"]
    prior_mean: Float[Tensor, "rows blocks latents"]
    kff: Float[Tensor, " rows"]
    pairing: Pairing

    def whiten(self, factor: Float[Tensor, "inducing inducing"]) -> WhitenedMeans:
        """The same with a = L^-1 k_u, given the factor L."""
        return self._with(solve(factor, self.ku.flatten(0, 1)))

    def whiten_by_kuu(self, kuu: Float[Tensor, "inducing inducing"], dtype: torch.dtype) -> WhitenedMeans:
        """The same with a = L^-1 k_u, given Kuu. The gradient goes through the factorisation; it is computed in ``dtype``."""
        a: Tensor = Whiten.apply(kuu, self.ku.flatten(0, 1), dtype, self.ku.is_cuda)
        return self._with(a)

    def _with(self, a: Float[Tensor, "samples inducing"]) -> WhitenedMeans:
        return WhitenedMeans(a.reshape(self.ku.shape), self.prior_mean, self.kff, self.pairing)


class WhitenedMeans(NamedTuple):
    """The same with a = L^-1 k_u in place of k_u."""

    a: Float[Tensor, "rows blocks inducing"]
    prior_mean: Float[Tensor, "rows blocks latents"]
    kff: Float[Tensor, " rows"]
    pairing: Pairing


class Whiten(torch.autograd.Function):
    """Rows a = L^-1 k for L L^T = Kuu, as one function of Kuu and k.

    The gradient of the solve begins with L^-T, that of the factorisation goes on with L^T, and the two cancel: with C the lower
    triangle of sum(ga a^T), mirrored, the gradient of Kuu is -1/2 L^-T C L^-1. That saves a product of M x M matrices.

    The value needs all digits of float64. The gradient needs no more digits than the data have, so it is computed in their
    ``dtype``. Rounding would show only along Kuu itself, the direction of the kernel's variance. There the gradient must be
    -1/2 sum(ga * a), and it is corrected to that value.

    With ``invert``, L^-1 is computed once and the rest are products, which are faster on a GPU than four triangular solves.
    """

    @staticmethod
    def forward(ctx: Any, kuu: Tensor, k: Tensor, dtype: torch.dtype, invert: bool) -> Tensor:
        lower = cholesky_without_waiting(kuu) if kuu.is_cuda else cholesky(kuu).lower
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
            # All three matrices are symmetric. The transposes give each operation the memory layout that it is fastest on:
            # columns for the solves, rows for everything else.
            grad_kuu = unwhiten(unwhiten(c.mT).mT).mT.to(grad.dtype).mul_(-0.5)
            excess = torch.linalg.vecdot(grad_kuu.flatten(), kuu.flatten()) + 0.5 * torch.linalg.vecdot(grad, a).sum()
            grad_kuu.diagonal().sub_(excess / kuu.trace())
        if ctx.needs_input_grad[1]:
            grad_k = unwhiten(ga).to(grad.dtype)
        return grad_kuu, grad_k, None, None


def _mirrored(matrix: Float[Tensor, "size size"]) -> Float[Tensor, "size size"]:
    """The lower triangle on both sides."""
    return torch.tril(matrix) + torch.tril(matrix, -1).mT


def inverse(factor: Float[Tensor, "inducing inducing"]) -> Float[Tensor, "inducing inducing"]:
    """L^-1: on a GPU, products with it take a fraction of the time of solves."""
    return torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=factor.dtype, device=factor.device), upper=False)


def solve(factor: Float[Tensor, "inducing inducing"], k: Float[Tensor, "rows inducing"]) -> Float[Tensor, "rows inducing"]:
    """L^-1 k for each row k."""
    return torch.linalg.solve_triangular(factor, k.mT, upper=False).mT
