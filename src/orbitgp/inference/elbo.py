"""The objective: a lower bound on the log marginal likelihood, as plain functions."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments
from orbitgp.orbits import Samples


def elbo(
    model: InvariantGP,
    likelihood: Likelihood,
    samples: Samples,
    y: Float[Tensor, "rows *outputs"],
    num_data: int,
    local: Float[Tensor, "rows *params"] | None = None,
) -> Float[Tensor, ""]:
    """ELBO = N/B sum_n [ const_n + eta_n E f_n - 1/2 lam_n E f_n^2 ] - KL(q(u) || p(u)), from a minibatch of B of N data.

    Unbiased over orbit samples and minibatches. ``local`` are the likelihood's local parameters for these data, if it has any;
    they must not be computed from ``samples``.
    """
    expected, _ = expected_log_likelihood(model, likelihood, samples, y, local)
    return expected.sum() * (num_data / len(y)) - model.kl()


def expected_log_likelihood(
    model: InvariantGP,
    likelihood: Likelihood,
    samples: Samples,
    y: Float[Tensor, "rows *outputs"],
    local: Float[Tensor, "rows *params"] | None = None,
    factor: Float[Tensor, "inducing inducing"] | None = None,
) -> tuple[Float[Tensor, " rows"], Moments]:
    """The data terms of the bound, one for each datum, and the moments that they are made of (``factor``: model.factor())."""
    moments = model.moments(model.whitened_means(samples, factor), cross=likelihood.couples)
    return likelihood.quadratic(y, local).expectation(moments), moments
