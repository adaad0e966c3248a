"""How much a quadratic bound gives away: the exact expected log likelihood under q(f), against the bound at its best.

The gap vanishes for a point mass where the bound is an envelope, and grows with the variance of q(f): it is what choosing one
quadratic for the whole of q(f) costs, and no choice of local parameters removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.likelihoods.base import Likelihood, Moments
from orbitgp.likelihoods.bernoulli import Bernoulli
from orbitgp.likelihoods.quadrature import normal_average


class Gap(NamedTuple):
    """E log p(y|f) under a Gaussian q(f), and its bound at the best local parameters, for each datum."""

    exact: Float[Tensor, " rows"]
    bound: Float[Tensor, " rows"]


class GapRow(NamedTuple):
    """One line of the table: q(f) = N(mean, variance) and y = +1, the best c, the exact value, the bound and the difference."""

    mean: float
    variance: float
    c: float
    exact: float
    bound: float
    gap: float


def gaussian_moments(
    mean: Float[Tensor, "rows latents"], variance: Float[Tensor, "rows latents"], cross: bool = False
) -> Moments:
    """The exact moments of q(f) = N(mean, diag variance)."""
    outer = mean[:, :, None] * mean[:, None, :] + torch.diag_embed(variance) if cross else None
    return Moments(mean, mean.square() + variance, outer)


@torch.no_grad()
def gap(
    likelihood: Likelihood,
    y: Float[Tensor, "rows *outputs"],
    mean: Float[Tensor, "rows latents"],
    variance: Float[Tensor, "rows latents"],
) -> Gap:
    """The exact expectation by quadrature, and the bound."""
    moments = gaussian_moments(mean, variance, likelihood.couples)
    bound = likelihood.quadratic(y, likelihood.local(y, moments)).expectation(moments)
    exact = [_expected_log_prob(likelihood, *row) for row in zip(y.split(1), mean.split(1), variance.split(1), strict=True)]
    return Gap(torch.cat(exact), bound)


def _expected_log_prob(
    likelihood: Likelihood,
    y: Float[Tensor, "1 *outputs"],
    mean: Float[Tensor, "1 latents"],
    variance: Float[Tensor, "1 latents"],
) -> Float[Tensor, " 1"]:
    """E log p(y|f) of one datum: the log density takes y with all of its rows, so rows go one at a time."""
    return normal_average(lambda f: likelihood.log_prob(y, f), mean, variance)


def gap_table(
    means: Sequence[float] = (0.0, 1.0, 3.0, -3.0), variances: Sequence[float] = (0.01, 0.1, 1.0, 4.0, 16.0)
) -> list[GapRow]:
    """The gap of the logistic bound at y = +1, over a grid."""
    grid = torch.cartesian_prod(torch.tensor(means), torch.tensor(variances)).double()
    mean, variance = grid[:, :1], grid[:, 1:]
    bernoulli, y = Bernoulli(), torch.ones_like(mean)
    exact, bound = gap(bernoulli, y, mean, variance)
    c = bernoulli.local(y, gaussian_moments(mean, variance))[:, 0]
    columns = (mean[:, 0], variance[:, 0], c, exact, bound, exact - bound)
    return [GapRow(*(float(v) for v in row)) for row in zip(*columns, strict=True)]
