"""The mean of a likelihood over a normal f, with two derivatives: what expectation propagation asks for.

    log Z(m) = log E p(y | f),   f ~ N(m, v)

The density of f that is proportional to N(f; m, v) p(y | f) is called tilted. Its mean is m + v (log Z)' and its
variance is v + v^2 (log Z)''.

For a probit everything has a closed form: E Phi(y f / s) = Phi(z) with z = y m / sqrt(s^2 + v). A mixture of probits
has one too. Every sigmoid whose slope is a scale mixture of normals is such a mixture, the logistic too.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Column = Float[Tensor, "rows 1"]
Parts = Float[Tensor, " parts"]  # of a mixture of probits

_LOGISTIC_NODES, _LOGISTIC_REACH = 40, (0.25, 7.0)


class Tilted(NamedTuple):
    """log Z for each datum, its slope in m, and its curvature -(log Z)'', positive for a log-concave likelihood."""

    log_z: Column
    slope: Column
    curvature: Column


def tilted_by_probits(y: Column, mean: Column, variance: Column, weights: Parts, scales: Parts) -> Tilted:
    """Of p(y | f) = sum_i weights_i Phi(y f / scales_i), with y = -1 or +1."""
    root = (scales.square() + variance).sqrt()
    z = y * mean / root
    log_cdf = torch.special.log_ndtr(z)
    parts = weights.log() + log_cdf
    log_z = torch.logsumexp(parts, -1, keepdim=True)
    # Z' and Z'' over Z: each part has y phi(z) / root and -z phi(z) / root^2.
    first = torch.exp(parts - log_z - log_cdf - 0.5 * (z.square() + math.log(2 * math.pi))) / root
    slope = y * first.sum(-1, keepdim=True)
    return Tilted(log_z, slope, slope.square() + (first * z / root).sum(-1, keepdim=True))


def logistic_mean(mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E 1 / (1 + exp(-f)) for f ~ N(mean, variance). It moves towards 1/2 as the variance grows, as each Phi does."""
    weights, scales = (part.to(mean) for part in logistic_as_probits())
    return torch.special.ndtr(mean[..., None] / (scales.square() + variance[..., None]).sqrt()) @ weights


@lru_cache(maxsize=1)
def logistic_as_probits() -> tuple[Parts, Parts]:
    """Weights and scales with 1 / (1 + exp(-f)) = sum_i weights_i Phi(f / scales_i), within 1e-9 of it for f > -100.

    A logistic variable is normal with standard deviation 2 k, where k has Kolmogorov's distribution (Andrews and
    Mallows 1974), whose density is sum_j (-1)^(j+1) 8 j^2 k exp(-2 j^2 k^2). The nodes k = log(1 + e^t) are even in t.
    """
    first, last = (math.log(math.expm1(k)) for k in _LOGISTIC_REACH)
    t = torch.linspace(first, last, _LOGISTIC_NODES, dtype=torch.float64)
    k, j = torch.nn.functional.softplus(t), torch.arange(1, 61, dtype=torch.float64)[:, None]
    density = ((-1) ** (j + 1) * 8 * j.square() * k * torch.exp(-2 * (j * k).square())).sum(0)
    weights = density * torch.sigmoid(t)
    return weights / weights.sum(), 2 * k
