"""q(u) in closed form: the natural gradient of a quadratic bound.

For a bound that is quadratic in f, the best q(v) = N(m, S) given everything else solves a linear system. In whitened
coordinates, with a_n = E_a a(x_a) the orbit mean of datum n and p_n its prior mean,

    S^-1   = I + sum_n lam_n a_n a_n^T
    S^-1 m = sum_n (eta_n - lam_n p_n) a_n,

and a natural-gradient step of size rho mixes these with the previous ones; rho = 1 jumps. Both sums are estimated from
orbit samples of a (large) batch without any backward pass. a_n a_n^T is a product of two means: its unbiased estimate
pairs independent blocks. That estimate need not be positive semi-definite, so it is blended with as little of the
biased, positive one (the outer product of the overall mean) as keeps S^-1 above I/2. q(u) may be any distribution
without breaking the bound, so the blend costs tightness, never validity, and the bound is always scored on other draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import WhitenedMeans, partners
from orbitgp.kernels.cholesky import cholesky
from orbitgp.likelihoods import Quadratic
from orbitgp.orbits import Pairing


class Statistics(NamedTuple):
    """What makes q(u): sum_n lam_n a_n a_n^T (unbiased, and biased but positive) and sum_n (eta_n - lam_n p_n) a_n."""

    unbiased: Float[Tensor, "covariances inducing inducing"]
    positive: Float[Tensor, "covariances inducing inducing"]
    linear: Float[Tensor, "inducing latents"]

    def mix(self, other: Statistics, rho: float) -> Statistics:
        """(1 - rho) * self + rho * other."""
        return Statistics(*(torch.lerp(a, b, rho) for a, b in zip(self, other, strict=True)))

    def scale(self, factor: float) -> Statistics:
        """Every sum times this number, as for more data of the same kind."""
        return Statistics(*(term * factor for term in self))


def total(parts: Iterable[Statistics]) -> Statistics:
    """The statistics of all parts of the data together."""
    first, *others = parts
    return Statistics(*(sum(terms, start=term) for term, *terms in zip(first, *others, strict=True)))


def statistics(model: InvariantGP, means: WhitenedMeans, quadratic: Quadratic, num_data: int) -> Statistics:
    """The statistics of a batch, scaled up to ``num_data``."""
    a, prior_mean, _, pairing = means
    lam, eta = quadratic.lam.to(a.dtype), quadratic.eta.to(a.dtype)
    # p_n a_n is a product of two expectations over the same draws, so it is paired too.
    linear = a.mean(1).mT @ eta - a.flatten(0, 1).mT @ partners(prior_mean * lam[:, None], pairing).flatten(0, 1)
    weights = lam[:, :1] if len(model.q_sqrt) == 1 else lam
    unbiased = positive = _paired_outers(a, weights, pairing)
    if pairing.blocks > 1:  # outer product of the overall mean: biased, as it pairs samples with themselves; positive
        positive = _paired_outers(a.mean(1, keepdim=True), weights, Pairing.exact())
    return Statistics(unbiased, positive, linear).scale(num_data / len(a))


def _paired_outers(a: Tensor, weights: Tensor, pairing: Pairing) -> Tensor:
    """sum_n w_nc (E a_n) (E a_n)^T, paired, for each column c of weights: (C, M, M)."""
    if weights.shape[1] > 1:
        # Most data often have the same weight, as those of all other classes do. One product serves all columns for
        # them; only the few others need a product for each column.
        common = weights.median(0).values
        rest = weights - common
        if (rest != 0).double().mean() < 0.5:
            base = _paired_outer(a, torch.ones_like(rest[:, 0]), pairing)
            few = [(w != 0).nonzero()[:, 0] for w in rest.unbind(1)]
            own = [_paired_outer(a[rows], w[rows], pairing) for rows, w in zip(few, rest.unbind(1), strict=True)]
            return common[:, None, None] * base + torch.stack(own)
    return torch.stack([_paired_outer(a, w, pairing) for w in weights.unbind(1)])


def _paired_outer(a: Tensor, weight: Tensor, pairing: Pairing) -> Tensor:
    """sum_n w_n (E a_n) (E a_n)^T, paired: (M, M)."""
    if pairing.two_groups:  # half the products
        half = (a[:, 0] * (pairing.off * weight)[:, None]).mT @ a[:, 1]
        return half + half.mT
    return (a * weight[:, None, None]).flatten(0, 1).mT @ partners(a, pairing).flatten(0, 1)


@torch.no_grad()
def set_posterior(model: InvariantGP, stats: Statistics) -> float:
    """Set q(u) from statistics, and return how much of the biased estimate was blended in to keep S^-1 above I/2."""
    identity = torch.eye(len(model.q_mean), dtype=torch.float64, device=model.q_mean.device)
    second, blend = stats.unbiased, 0.0
    while blend < 1.0 and torch.linalg.cholesky_ex(second + 0.5 * identity).info.any():
        blend = min(1.0, 2 * blend or 0.05)
        second = torch.lerp(stats.unbiased, stats.positive, blend)
    # S^-1 = U U^T with U upper triangular (a Cholesky factor of the reversed matrix), so that U^-T is lower triangular.
    upper = cholesky((identity + second).flip(-2, -1)).lower.flip(-2, -1)
    root = torch.linalg.solve_triangular(upper, identity.expand_as(upper), upper=True).mT.contiguous()
    model.q_sqrt.copy_(root)
    linear = stats.linear.mT[..., None]  # (L, M, 1)
    model.q_mean.copy_((root @ (root.mT @ linear))[..., 0].mT)
    return blend
