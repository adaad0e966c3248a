"""Expectation propagation: each likelihood term is replaced by a Gaussian site that has its moments (Minka 2001).

The site of datum n is exp(const + nu f - 1/2 tau f^2), a quadratic like every other here. Without it, f_n would be N(m, v): the
cavity. The likelihood itself, in the place of the site, makes the tilted law, with log Z, mean m^ and variance v^
(:mod:`orbitgp.likelihoods.tilted`). A site is right if it gives the same three numbers:

    tau = 1/v^ - 1/v       nu = m^/v^ - m/v       const = log Z - log of the integral of N(f; m, v) exp(nu f - 1/2 tau f^2)

The constants make the Gaussian evidence that of expectation propagation. Where all sites are right, it does not change with
them to first order. So its gradient is that at fixed sites, and a small error of the sites is a tiny one of the evidence.

How far it lies below, about, is the first term of an expansion (Opper, Paquet and Winther 2013): a tilted law is skew, and its
Gaussian is not. With the skewness s_n of each tilted law and the posterior correlations r_mn, the term is

    1/12 sum over m != n of s_m s_n r_mn^3.

All sites are set at once, a part of the way, and extrapolated (:mod:`orbitgp.inference.fixed_point`). What is left to do is
the sum over data of KL(tilted law || marginal), in nats.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.fixed_point import AndersonMixing, enough
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Quadratic
from orbitgp.likelihoods.tilted import Tilted

Column = Float[Tensor, "rows 1"]
Sites = Float[Tensor, "rows 2"]  # nu and tau of each datum
LocalSites = Float[Tensor, "rows 4"]  # nu and tau, then mean and variance of the cavity
Targets = Float[Tensor, "rows *outputs"]
Found = TypeVar("Found")

_TURNS = 100  # at most
_PART = 0.7  # of the way to new sites: all of it makes large ones swing
_LEAST_PRECISION = 1e-8  # of the largest, as for all quadratics
_LEAST_VARIANCE = 1e-10  # of the cavity's, that the tilted law may have
_COLUMNS = 256  # of the posterior covariance at a time
_STEP = 0.02  # of the cavity's standard deviation, for a difference of curvatures


class Cavities(NamedTuple):
    """The law of each f_n given all other data."""

    mean: Column
    variance: Column

    def sites(self, tilted: Tilted) -> Sites:
        """The sites that give the moments of the tilted laws. A precision that is too small leaves the mean right."""
        precision = tilted.curvature / self._remaining(tilted)
        precision = precision.clamp_min(_LEAST_PRECISION * (float(precision.max()) or 1.0))
        return torch.cat([tilted.slope + precision * (self.mean + self.variance * tilted.slope), precision], 1)

    def constants(self, tilted: Tilted, sites: Sites) -> Column:
        """What makes each site integrate to Z."""
        nu, tau = sites.split(1, 1)
        grown = 1 + tau * self.variance
        exponent = nu * self.mean + 0.5 * nu.square() * self.variance - 0.5 * tau * self.mean.square()
        return tilted.log_z + 0.5 * grown.log() - exponent / grown

    def left_to_do(self, tilted: Tilted, sites: Sites) -> float:
        """The sum of KL(tilted law || marginal), both as Gaussians."""
        nu, tau = sites.split(1, 1)
        grown = 1 + tau * self.variance
        ratio = self._remaining(tilted) * grown  # of the variances
        apart = self.variance * tilted.slope - (nu - tau * self.mean) * self.variance / grown
        return float(0.5 * (apart.square() * grown / self.variance + ratio - 1 - ratio.log()).sum())

    def _remaining(self, tilted: Tilted) -> Column:
        """The share of the cavity's variance that the tilted law keeps."""
        return (1 - self.variance * tilted.curvature).clamp_min(_LEAST_VARIANCE)


def quadratic_at(likelihood: Likelihood, y: Targets, local: LocalSites) -> Quadratic:
    """The sites with their constants, which depend on the parameters of the likelihood, if it has any."""
    sites, (mean, variance) = local[:, :2], local[:, 2:].split(1, 1)
    cavities = Cavities(mean, variance)
    return Quadratic(cavities.constants(likelihood.tilted(y, mean, variance), sites)[:, 0], sites[:, :1], sites[:, 1:])


def propagated(turn: Callable[[Sites], tuple[float, Sites, Found]], sites: Sites, of_a_datum: float) -> Found:
    """What a turn finds at sites that are right.

    A turn returns what is left to do at some sites, the sites that it asks for, and what else it finds.
    """
    mixing, last = AndersonMixing(), float("inf")
    for _ in range(_TURNS):
        left, asked, found = turn(sites)
        if left < enough(sites, of_a_datum) or not (isfinite(left) and asked.isfinite().all()):
            break
        if left > last:
            mixing.forget()
        last = left
        sites = mixing.next(sites, sites + _PART * (asked - sites))
    return found


@torch.no_grad()
def missing_nats(likelihood: Likelihood, y: Targets, local: LocalSites, system: NoisyCovariance) -> float:
    """About how far the evidence of these sites lies below the log evidence."""
    tau, (mean, variance) = local[:, 1:2], local[:, 2:].split(1, 1)
    step = _STEP * variance.sqrt()
    before, after = (likelihood.tilted(y, mean + sign * step, variance).curvature for sign in (-1, 1))
    root = (variance / (1 + tau * variance)).sqrt()  # the standard deviation of the marginal
    skewness = (before - after) / (2 * step) * (variance / root) ** 3
    total, rows, scale = 0.0, torch.arange(len(y), device=y.device), 1 / (tau * root)
    for some in rows.split(_COLUMNS):  # the covariance of f is noise - noise C^-1 noise
        columns = torch.nn.functional.one_hot(some, len(y)).mT.to(scale)
        correlations = -scale * system.solve(columns[:, None])[:, 0] * scale[some].mT
        correlations[some, torch.arange(len(some), device=y.device)] = 0.0
        total += float((skewness * correlations**3 @ skewness[some]).sum())
    return abs(total) / 12
