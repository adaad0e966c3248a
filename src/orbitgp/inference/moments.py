"""The unbiased estimators (section 4.4 and appendix B), and the block means that they are made from.

The bound needs two moments of q(f_n) for each datum, and both are expectations over the orbit:

    E f_n   = E_a h(x_a)                              one expectation: a plain average
    E f_n^2 = E_a E_a' [ h(x_a) h(x_a') + c(x_a, x_a') ]   two *independent* ones: a sum over pairs

with h the posterior mean of g and c its posterior covariance. Squaring an average is biased, because it pairs samples
with themselves. Samples come in blocks, with a :class:`~orbitgp.orbits.Pairing` that says how pairs of blocks are
weighted; the paper's estimator, its grouped form, sampling without replacement and exact enumeration differ only in it.
Because both sides of a pair factor over samples, only block *means* are needed: B of them for each datum instead of S.

Nothing is clamped: an estimate of a variance may be negative, and the bound, which is linear in it, stays unbiased.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.cholesky import cholesky, cholesky_without_waiting
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits import Pairing


def pair_product(
    a: Float[Tensor, "rows blocks *#rest"], b: Float[Tensor, "rows blocks *#rest"], pairing: Pairing
) -> Float[Tensor, "rows ..."]:
    """Unbiased estimate of (E a) (E b), elementwise, from block means that share their samples."""
    return (a * partners(b, pairing)).sum(1)


def partners(b: Float[Tensor, "rows blocks *rest"], pairing: Pairing) -> Float[Tensor, "rows blocks *rest"]:
    """What each block mean a_i is multiplied with, in place of b_i, so that the sum over blocks is unbiased:

    off * sum_{j != i} b_j + diag * b_i  =  off * sum_j b_j + (diag - off) * b_i
    """
    return pairing.off * b.sum(1, keepdim=True) + (pairing.diag - pairing.off) * b


def estimate(
    mean: Float[Tensor, "rows blocks latents"], variance: Float[Tensor, "rows anylatents"], pairing: Pairing
) -> Moments:
    """Moments from block means of h and the paired estimate of the variance (one column if shared by all outputs)."""
    return Moments(mean.mean(1), pair_product(mean, mean, pairing) + variance)


class WhitenedMeans(NamedTuple):
    """What the prior knows of a batch of samples: block means of a = L^-1 k_u and m_g, and the paired mean of k_g."""

    a: Float[Tensor, "rows blocks inducing"]
    prior_mean: Float[Tensor, "rows blocks latents"]
    kff: Float[Tensor, " rows"]
    pairing: Pairing


def whitened(
    ku: Float[Tensor, "rows blocks inducing"], factor: Float[Tensor, "inducing inducing"]
) -> Float[Tensor, "rows blocks inducing"]:
    """A = L^-1 k_u, with L L^T = Kuu: the moments of q(f) need it, because q(v) = N(m, S) is whitened too."""
    return torch.linalg.solve_triangular(factor, ku.flatten(0, 1).mT, upper=False).mT.reshape(ku.shape)


def learned_factor(kuu: Float[Tensor, "inducing inducing"]) -> Float[Tensor, "inducing inducing"]:
    """L, with a gradient. On a GPU the host does not wait for it."""
    return cholesky_without_waiting(kuu) if kuu.is_cuda else cholesky(kuu).lower
