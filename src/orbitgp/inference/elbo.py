"""The objective: a lower bound on the log marginal likelihood, as plain functions.

This is the only place where a bound is put together. Training, evidence and tests call :func:`elbo`, or :func:`elbo_of_all`
where the data are streamed. The data terms alone are :func:`expected_log_likelihood`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.local_parameters import LocalOfRows
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits import Samples

Local = Float[Tensor, "rows *params"]


class Batch(NamedTuple):
    """Some of the data: their orbit samples, their targets and their local parameters."""

    samples: Samples
    y: Float[Tensor, "rows *outputs"]
    local: Local | LocalOfRows | None


def elbo(
    model: InvariantGP,
    likelihood: Likelihood,
    samples: Samples,
    y: Float[Tensor, "rows *outputs"],
    num_data: int,
    local: Local | LocalOfRows | None = None,
    batch: int | None = None,
) -> Float[Tensor, ""]:
    """ELBO = N/B sum_n [ const_n + eta_n E f_n - 1/2 lam_n E f_n^2 ] - KL(q(u) || p(u)), from a minibatch of B of N data.

    Unbiased over orbit samples and minibatches. ``local`` are the likelihood's local parameters for these data, if it has any;
    they must not be computed from ``samples``. ``batch`` is B where several processes compute its terms: their bounds sum to
    that of the batch, and the first process takes the KL.
    """
    scale = num_data / (batch or len(y))
    expected = expected_log_likelihood(model, likelihood, samples, y, local).sum() * scale if len(y) else 0.0
    return expected - model.kl() * (1.0 if processes.rank() == 0 else 0.0)


@torch.no_grad()
def elbo_of_all(
    model: InvariantGP,
    likelihood: Likelihood,
    batches: Iterable[Batch],
    factor: Float[Tensor, "inducing inducing"] | None = None,
    scale: float = 1.0,
) -> float:
    """The same bound of all data as a number, from batches that together hold every datum once (``factor``: model.factor()).

    ``scale`` is N/B where they hold B of N data.
    """
    factor = model.factor() if factor is None else factor
    expected = 0.0
    for samples, y, local in batches:
        expected += float(expected_log_likelihood(model, likelihood, samples, y, local, factor).sum())
    return scale * sum(processes.all_gather(expected)) - float(model.kl())


def expected_log_likelihood(
    model: InvariantGP,
    likelihood: Likelihood,
    samples: Samples,
    y: Float[Tensor, "rows *outputs"],
    local: Local | LocalOfRows | None = None,
    factor: Float[Tensor, "inducing inducing"] | None = None,
) -> Float[Tensor, " rows"]:
    """The data terms of the bound, one for each datum (``factor``: model.factor(), where nothing is learned)."""
    if local is None or isinstance(local, Tensor):
        return likelihood.quadratic(y, local).expectation(_moments(model, likelihood, samples, factor))
    moments = [_moments(model, likelihood, part, factor) for part in local.split(samples)]
    chosen = zip(local.choose(moments), moments, strict=True)
    terms = [likelihood.quadratic(y, values).expectation(part) for values, part in chosen]
    return terms[0] if len(terms) == 1 else torch.stack(terms).mean(0)


def _moments(model: InvariantGP, likelihood: Likelihood, samples: Samples, factor: Tensor | None) -> Moments:
    return model.moments(model.whitened_means(samples, factor), cross=likelihood.couples)
