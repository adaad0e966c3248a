"""How far the bound of the sparse model lies below the log evidence, about.

Two things are lost. The inducing variables do not determine f: each datum pays for the variance that they leave,

    1/2 sum_nl lam_nl (k_ff(x_n) - q_ff(x_n)),    q_ff = k_fu Kuu^-1 k_uf,

which is unbiased over orbit samples, as every product of two expectations is paired. And q(v) = N(m, S) need not be the best
one. The bound is quadratic in f, so with S*^-1 = I + sum_n lam_n a_n a_n^T and m* = S* sum_n (eta_n - lam_n p_n) a_n what q(v)
loses is

    KL(q || q*) = 1/2 [ (m - m*)^T S*^-1 (m - m*) + tr S*^-1 S - log|S*^-1 S| - M ],

the collapsed bound less the bound at q. With enumerated orbits and fixed draws both are exact. With fresh draws S* and m* are
noisy, and the second reads a little high.

Their sum is an estimate, not a bound: the log evidence less the sparse bound is this sum less 1/2 log|I + X| (X is what the
inducing variables leave, in units of the noise) plus what the fit to the targets gains from Q in place of K_f.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.elbo import Batch
from orbitgp.inference.local_parameters import LocalOfRows
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import pair_product
from orbitgp.inference.natural_gradient import Statistics, precision, statistics, total
from orbitgp.kernels.cholesky import cholesky
from orbitgp.likelihoods import Likelihood


class Slack(NamedTuple):
    """Nats that the sparse bound loses: to the variance that the inducing variables leave, and to q(u)."""

    variance: float
    posterior: float

    def __float__(self) -> float:
        return self.variance + self.posterior


@torch.no_grad()
def slack(
    model: InvariantGP,
    likelihood: Likelihood,
    batches: Iterable[Batch],
    factor: Float[Tensor, "inducing inducing"] | None = None,
) -> Slack:
    """The slack of the bound of all data, from batches that together hold every datum once (``factor``: model.factor()).

    Where the likelihood couples latent functions, each loses against its own optimum with the others as they are.
    """
    factor = model.factor() if factor is None else factor
    variance, stats = 0.0, None
    for samples, y, local in batches:
        if isinstance(local, LocalOfRows):
            raise TypeError("the slack needs the local parameters themselves, not a source that chooses them.")
        means, quadratic = model.whitened_means(samples, factor), likelihood.quadratic(y, local)
        lam = quadratic.lam if quadratic.lam.ndim == 2 else quadratic.lam.diagonal(dim1=-2, dim2=-1)
        left = means.kff - pair_product(means.a, means.a, means.pairing).sum(-1)
        variance += 0.5 * float((lam.sum(1) * left).sum())
        part = statistics(model, means, quadratic, len(y))
        stats = part if stats is None else total([stats, part])
    if stats is None:
        raise ValueError("the slack needs at least one batch of data, got none.")
    return Slack(variance, _loss_of_posterior(model, stats))


def _loss_of_posterior(model: InvariantGP, stats: Statistics) -> float:
    """KL(q(v) || q*(v)), over all latent functions."""
    inverse, _ = precision(stats)  # (C, M, M)
    size, latents = model.q_mean.shape
    factor = cholesky(inverse).lower
    best = torch.cholesky_solve(stats.linear.mT[..., None], factor)[..., 0].mT
    away = (model.q_mean - best).mT[..., None]
    means = (factor.mT @ away).square().sum()
    spread = (factor.mT @ model.q_sqrt).square().sum()
    logdets = factor.diagonal(dim1=-2, dim2=-1).log().sum() + model.q_sqrt.diagonal(dim1=-2, dim2=-1).abs().log().sum()
    copies = latents / len(inverse)
    return 0.5 * float(means + copies * (spread - 2 * logdets) - latents * size)
