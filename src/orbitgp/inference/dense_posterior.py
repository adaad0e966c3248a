"""The posterior of f at the data, given K_f: what is left to do when kernel and orbit have done their part.

Every likelihood is used through a quadratic, const + eta . f - 1/2 f . lam f. That is a Gaussian observation t = eta / lam of
f with noise 1 / lam. With C_l = K_f + diag(noise_l) and m the prior mean, the log evidence is

    sum_n const_n + sum_nl 1/2 (eta^2 / lam + log(2 pi / lam)) + sum_l log N(t_l; m_l, C_l).

A constant prior mean is at its best in closed form. Where the likelihood is not Gaussian, its quadratic depends on local
parameters, and these and the posterior take turns. A likelihood that knows its tilted law has the sites of expectation
propagation (:mod:`orbitgp.inference.expectation_propagation`). Of all others, any local parameters give a bound, and each turn
raises it (:mod:`orbitgp.inference.fixed_point`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import expectation_propagation
from orbitgp.inference.expectation_propagation import Cavities, Sites, propagated
from orbitgp.inference.fixed_point import COARSE, FINE, settled
from orbitgp.inference.memory import chunk_elements
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments, Quadratic, required

Gram = Float[Tensor, "rows rows"]
Means = Float[Tensor, "rows latents"]
Targets = Float[Tensor, "rows *outputs"]
Locals = Float[Tensor, "rows *params"]

_MANY, _EVERY = 1000, 4  # of so many data, every fourth is solved for first where local parameters are not known
_LEAST_PRECISION = 1e-8  # of the largest: targets may have any units


class Observations(NamedTuple):
    """A quadratic likelihood as Gaussian observations of f, with what that leaves of its constants."""

    targets: Float[Tensor, "rows latents"]
    noise: Float[Tensor, "rows latents"]
    constant: Float[Tensor, ""]

    @classmethod
    def of(cls, quadratic: Quadratic) -> Observations:
        # A datum that says nothing of a latent function has lam = 0. A little more keeps the noise finite, and a bound a bound.
        eta, lam = quadratic.eta.double(), quadratic.lam.double()
        lam = lam.clamp_min(_LEAST_PRECISION * (float(lam.detach().max()) or 1.0))
        rest = 0.5 * (eta.square() / lam + torch.log(2 * math.pi / lam)).sum()
        return cls(eta / lam, 1 / lam, quadratic.const.double().sum() + rest)


class Solution(NamedTuple):
    """The posterior at the data: the inverses, the weights alpha, and the log evidence."""

    system: NoisyCovariance
    weights: Float[Tensor, "rows latents"]
    log_evidence: float
    local: Locals | None
    bias: Float[Tensor, " latents"] | None  # of a constant prior mean, if it is to be found

    @property
    def jitter(self) -> float:
        """The share of the diagonal that the factorisation needed."""
        return self.system.jitter


@torch.no_grad()
def solve(
    gram: Gram,
    means: Means,
    likelihood: Likelihood,
    y: Targets,
    local: Locals | None = None,
    learns_mean: bool = True,
    invert: bool = False,
    by_bound: bool = False,
) -> Solution:
    """The posterior at the best local parameters, where the likelihood has any, which are sought from ``local`` on.

    ``means`` is the prior mean, less a constant if that is to be found (``learns_mean``). ``invert``: the inverses are needed.
    ``by_bound``: no expectation propagation, as for a sparse model.
    """
    if not likelihood.num_locals:
        return _solve(gram, means, Observations.of(likelihood.quadratic(y, None)), None, learns_mean, invert)
    many = len(y) >= _MANY
    if many and local is None and likelihood.log_concave:
        local = _predicted_by_some(gram, means, likelihood, y, learns_mean, by_bound)

    def turn(local: Locals) -> tuple[float, Locals, Solution]:
        observed = Observations.of(likelihood.quadratic(y, local))
        solution = _solve(gram, means, observed, local, learns_mean)
        return solution.log_evidence, required(likelihood.local(y, _moments(solution, observed))), solution

    def turn_of_sites(sites: Sites) -> tuple[float, Sites, Solution]:
        observed = Observations.of(Quadratic(sites.new_zeros(len(sites)), sites[:, :1], sites[:, 1:]))
        solution = _solve(gram, means, observed, None, learns_mean)
        cavities = _cavities(solution, observed)
        tilted = likelihood.tilted(y, *cavities)
        value = solution.log_evidence + float(cavities.constants(tilted, sites).sum())
        found = solution._replace(log_evidence=value, local=torch.cat([sites, *cavities], 1))
        return cavities.left_to_do(tilted, sites), cavities.sites(tilted), found

    of_a_datum = COARSE if many and not invert else FINE
    if likelihood.knows_tilted and not by_bound:
        if local is None:
            local = _local_at(likelihood, y, means, gram.diagonal()[:, None].double(), by_bound)
        solution = propagated(turn_of_sites, local[:, :2], of_a_datum)
    else:
        _, solution = settled(turn, begin_local(likelihood, y, local), of_a_datum)
    if invert:
        solution.system.invert()
    return solution


def quadratic_at(likelihood: Likelihood, y: Targets, local: Locals | None, by_bound: bool) -> Quadratic:
    """The quadratic in the place of the likelihood, at the local parameters of a solution."""
    if likelihood.knows_tilted and not by_bound:
        return expectation_propagation.quadratic_at(likelihood, y, required(local))
    return likelihood.quadratic(y, local)


def _local_at(likelihood: Likelihood, y: Targets, mean: Means, variance: Means, by_bound: bool) -> Locals:
    """The local parameters if f had this mean and variance: a start."""
    if likelihood.knows_tilted and not by_bound:
        return Cavities(mean, variance).sites(likelihood.tilted(y, mean, variance))
    return required(likelihood.local(y, Moments(mean, mean.square() + variance)))


def begin_local(likelihood: Likelihood, y: Targets, known: Locals | None) -> Locals:
    """Where the search for local parameters begins: at those that are known, if there are any."""
    if known is not None:
        return known
    return torch.ones(len(y), likelihood.num_locals, dtype=torch.float64, device=y.device)


def _predicted_by_some(
    gram: Gram, means: Means, likelihood: Likelihood, y: Targets, learns_mean: bool, by_bound: bool
) -> Locals:
    """Local parameters that every fourth row predicts for all: a start that costs little, and saves turns."""
    some = slice(None, None, _EVERY)
    solution = solve(gram[some, some], means[some], likelihood, y[some], None, learns_mean, by_bound=by_bound)
    if solution.bias is not None:
        means = means + solution.bias
    found = []
    step = max(1, chunk_elements(gram.device) // len(solution.weights))
    for rows in (slice(start, start + step) for start in range(0, len(y), step)):
        cross = gram[rows, some].double()
        mean = means[rows] + cross @ solution.weights
        variance = gram.diagonal()[rows, None] - solution.system.explained(cross.mT)
        found.append(_local_at(likelihood, y[rows], mean, variance.clamp_min(0.0), by_bound))
    return torch.cat(found)


def _solve(
    gram: Gram, means: Means, observed: Observations, local: Locals | None, learns_mean: bool, invert: bool = False
) -> Solution:
    targets, noise, constant = observed
    shared = bool((noise == noise[:, :1]).all())
    system = NoisyCovariance(gram, noise[:, :1] if shared else noise, invert)
    residual, bias = targets - means, None
    if learns_mean:  # at its best: generalised least squares, for each latent function
        weights, ones = system.solve(torch.stack([residual, torch.ones_like(residual)], 2)).unbind(2)
        bias = (ones * residual).sum(0) / ones.sum(0)
        residual, weights = residual - bias, weights - bias * ones
    else:
        weights = system.solve(residual[:, :, None])[:, :, 0]
    fit = (residual * weights).sum()
    logdets = system.logdets.sum() * (residual.shape[1] / len(system.logdets))
    value = constant - 0.5 * (fit + logdets + residual.numel() * math.log(2 * math.pi))
    return Solution(system, weights, float(value), local, bias)


def _moments(solution: Solution, observed: Observations) -> Moments:
    """The moments of f at the data: E f = t - noise alpha, var f = noise - noise^2 diag(C^-1)."""
    mean = observed.targets - observed.noise * solution.weights
    variance = (observed.noise - observed.noise.square() * solution.system.diagonals()).clamp_min(0.0)
    return Moments(mean, mean.square() + variance)


def _cavities(solution: Solution, observed: Observations) -> Cavities:
    """The law of each f given all other data: t - alpha / diag(C^-1), with variance 1 / diag(C^-1) - noise."""
    own = 1 / solution.system.diagonals()
    least = torch.finfo(own.dtype).eps * own
    return Cavities(observed.targets - solution.weights * own, torch.maximum(own - observed.noise, least))
