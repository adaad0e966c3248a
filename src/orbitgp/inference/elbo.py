"""The objective: a lower bound on the log marginal likelihood, and about how far it lies below, as plain functions.

This is the only place where a bound is put together. Training, evidence and tests call :func:`elbo`, or
:func:`elbo_of_all` where the data are streamed.

The inducing variables do not determine f. Each datum pays for the variance that they leave, the slack:

    1/2 sum_nl lam_nl (k_ff(x_n) - q_ff(x_n)),    q_ff = k_fu Kuu^-1 k_uf,

which is unbiased over orbit samples, as every product of two expectations is paired. It is an estimate of what the
bound loses, not a bound: at the best q(u), the log evidence less the bound is this sum less 1/2 log|I + X| (X is what
the inducing variables leave, in units of the noise) plus what the fit to the targets gains from Q in place of K_f.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import pair_product
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Locals, Targets
from orbitgp.orbits import Samples

Batch = tuple[Samples, Tensor, Tensor | None]  # orbit samples, targets and local parameters of some of the data


def elbo(
    model: InvariantGP,
    likelihood: Likelihood,
    samples: Samples,
    y: Targets,
    num_data: int,
    local: Locals | None = None,
    batch: int | None = None,
) -> Float[Tensor, ""]:
    """ELBO = N/B sum_n [ const_n + eta_n E f_n - 1/2 lam_n E f_n^2 ] - KL(q(u) || p(u)), of B of N data.

    Unbiased over orbit samples and minibatches. ``local`` are the likelihood's local parameters for these data, if it
    has any; they must not be computed from ``samples``. ``batch`` is B where several processes compute its terms: their
    bounds sum to that of the batch, and the first process takes the KL.
    """
    scale = num_data / (batch or len(y))
    means = model.whitened_means(samples) if len(y) else None  # a process may hold none of the batch
    expected = 0.0 if means is None else likelihood.quadratic(y, local).expectation(model.moments(means)).sum() * scale
    return expected - model.kl() * (1.0 if processes.rank() == 0 else 0.0)


class Bound(NamedTuple):
    """The bound of all data, and about how many nats it loses to the variance that the inducing variables leave."""

    value: float
    slack: float


@torch.no_grad()
def elbo_of_all(
    model: InvariantGP,
    likelihood: Likelihood,
    batches: Iterable[Batch],
    factor: Float[Tensor, "inducing inducing"] | None = None,
    scale: float = 1.0,
) -> Bound:
    """The same bound of all data as a number, from batches that hold each datum once (``factor``: model.factor()).

    ``scale`` is N/B where they hold B of N data.
    """
    factor, sums = model.factor() if factor is None else factor, model.q_mean.new_zeros(2)
    for samples, y, local in batches:
        means, quadratic = model.whitened_means(samples, factor), likelihood.quadratic(y, local)
        expected = quadratic.expectation(model.moments(means))
        left = means.kff - pair_product(means.a, means.a, means.pairing).sum(-1)
        sums += torch.stack([expected.sum(), 0.5 * (quadratic.lam.sum(1) * left).sum()]).double()
    processes.all_reduce([sums])
    expected_sum, slack = (scale * sums).tolist()
    return Bound(expected_sum - float(model.kl()), slack)
