"""The posterior of f at the data, given K_f: what is left to do when kernel and orbit have done their part.

Every likelihood is used through a quadratic, const + eta . f - 1/2 f . lam f. That is a Gaussian observation t = eta /
lam of f with noise 1 / lam. With C_l = K_f + diag(noise_l) and m the prior mean, the log evidence is

    sum_n const_n + sum_nl 1/2 (eta^2 / lam + log(2 pi / lam)) + sum_l log N(t_l; m_l, C_l).

A constant prior mean is at its best in closed form. Where the likelihood is not Gaussian, its quadratic depends on
local parameters, and these and the posterior take turns (:mod:`orbitgp.inference.fixed_point`). Any local parameters
give a bound, and each turn raises it.

A likelihood that knows its tilted distribution has better: expectation propagation (Minka 2001). The site of datum n is
exp(const + nu f - 1/2 tau f^2), a quadratic like every other here. Without it, f_n would be N(m, v): the cavity. The
likelihood itself, in the place of the site, makes the tilted distribution, with log Z, mean m^ and variance v^
(:mod:`orbitgp.likelihoods.tilted`). A site is right if it gives the same three numbers:

    tau = 1/v^ - 1/v     nu = m^/v^ - m/v     const = log Z - log of the integral of N(f; m, v) exp(nu f - 1/2 tau f^2)

The constants make the Gaussian evidence that of expectation propagation. Where all sites are right, it does not change
with them to first order. So its gradient is that at fixed sites, and a small error of the sites is a tiny one of the
evidence. All sites are set at once, a part of the way. The sum of KL(tilted || marginal), in nats, is their error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.fixed_point import MOST_TURNS, AndersonMixing, find_fixed_point, tolerance
from orbitgp.inference.noisy_covariance import LowRankCovariance, NoisyCovariance
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Locals, Moments, Quadratic, Targets, required
from orbitgp.likelihoods.tilted import Tilted

Gram = Float[Tensor, "rows rows"]
Means = Float[Tensor, "rows latents"]
Column = Float[Tensor, "rows 1"]
Sites = Float[Tensor, "rows 2"]  # nu and tau of each datum
LocalSites = Float[Tensor, "rows 4"]  # nu and tau, then mean and variance of the cavity

System = TypeVar("System", bound=NoisyCovariance | LowRankCovariance)

_LEAST_PRECISION = 1e-8  # as a share of the largest, since targets may have any units
_DAMPING = 0.7  # the share of a step to new sites: whole steps make large ones swing


class Observations(NamedTuple):
    """A quadratic likelihood as Gaussian observations of f, with what that leaves of its constants."""

    targets: Float[Tensor, "rows latents"]
    noise: Float[Tensor, "rows latents"]
    constant: Float[Tensor, ""]

    @classmethod
    def of(cls, quadratic: Quadratic) -> Observations:
        # A datum that says nothing of a latent function has lam = 0. A little more keeps noise finite, a bound a bound.
        eta, lam = quadratic.eta.double(), quadratic.lam.double()
        lam = lam.clamp_min(_LEAST_PRECISION * (float(lam.detach().max()) or 1.0))
        rest = 0.5 * (eta.square() / lam + torch.log(2 * math.pi / lam)).sum()
        return cls(eta / lam, 1 / lam, quadratic.const.double().sum() + rest)


@dataclass(frozen=True)
class Posterior(Generic[System]):
    """The posterior at the data: the inverses, the weights alpha, and the log evidence, or a bound on it."""

    system: System
    weights: Float[Tensor, "rows latents"]
    value: Float[Tensor, ""]
    targets: Float[Tensor, "rows latents"]
    local: Locals | None
    bias: Float[Tensor, " latents"] | None  # of a constant prior mean, if it is to be found
    unexplained: Float[Tensor, " rows"] | None = None  # variance that inducing variables leave, if there are any

    @property
    def log_evidence(self) -> float:
        return float(self.value.detach())

    @property
    def jitter(self) -> float:
        """The share of the diagonal that the factorisation needed."""
        return self.system.jitter

    @property
    def slack(self) -> Float[Tensor, ""] | float:
        """1/2 sum_nl lam_nl v_n: what a bound pays for the variance v_n that its inducing variables leave."""
        copies = self.weights.shape[1] / self.system.noise.shape[1]
        return 0.0 if self.unexplained is None else 0.5 * copies * (self.unexplained[:, None] / self.system.noise).sum()

    def moments(self) -> Moments:
        """Moments of f at the data: E f = t - noise alpha, var f = noise - noise^2 diag(C^-1), and the unexplained."""
        noise = self.system.noise
        mean, variance = self.targets - noise * self.weights, noise - noise.square() * self.system.diagonals()
        variance = variance if self.unexplained is None else variance + self.unexplained[:, None]
        return Moments(mean, mean.square() + variance.clamp_min(0.0))


Solution = Posterior[NoisyCovariance]


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

    ``means`` is the prior mean, less a constant if that is to be found (``learns_mean``). ``invert``: the inverses are
    needed. ``by_bound``: no expectation propagation, as for a sparse model.
    """

    in_turns = likelihood.num_locals > 0

    def at(observations: Observations, local: Locals | None) -> Solution:
        system = partial(NoisyCovariance, gram, invert=invert and not in_turns)
        return posterior(system, means, observations, local, learns_mean)

    if likelihood.knows_tilted and not by_bound:
        prior = Cavities(means, gram.diagonal()[:, None].double())
        solution = _propagated(at, likelihood, y, prior.sites(likelihood.tilted(y, *prior)) if local is None else local)
    else:
        solution = best_local(at, likelihood, y, local)[1]
    if invert and in_turns:
        solution.system.invert()
    return solution


def quadratic_at(likelihood: Likelihood, y: Targets, local: Locals | None, by_bound: bool) -> Quadratic:
    """The quadratic in the place of the likelihood, at the local parameters of a solution.

    Constants of sites depend on the parameters of the likelihood, if it has any.
    """
    if not likelihood.knows_tilted or by_bound:
        return likelihood.quadratic(y, local)
    sites, (mean, variance) = required(local)[:, :2], required(local)[:, 2:].split(1, 1)
    tilted = likelihood.tilted(y, mean, variance)
    return Quadratic(Cavities(mean, variance).constants(tilted, sites)[:, 0], sites[:, :1], sites[:, 1:])


def observed(likelihood: Likelihood, y: Targets, local: Locals | None = None, by_bound: bool = True) -> Observations:
    """The likelihood as Gaussian observations of f: what it is, or by the quadratic at the local parameters."""
    given = likelihood.observations(y)
    if given is None:
        return Observations.of(quadratic_at(likelihood, y, local, by_bound))
    targets, noise = given[0].double(), given[1].double()
    return Observations(targets, noise.clamp_max(noise.detach().min() / _LEAST_PRECISION), targets.new_zeros(()))


def initial_local(likelihood: Likelihood, y: Targets, known: Locals | None) -> Locals | None:
    """Where the search for local parameters begins, if there are any: at those that are known."""
    if known is not None or not likelihood.num_locals:
        return known
    return torch.ones(len(y), likelihood.num_locals, dtype=torch.float64, device=y.device)


@torch.no_grad()
def best_local(
    at: Callable[..., Posterior[System]], likelihood: Likelihood, y: Targets, local: Locals | None
) -> tuple[Locals | None, Posterior[System]]:
    """The best local parameters, if any, and the posterior there: they and the posterior ``at`` them take turns."""
    local = initial_local(likelihood, y, local)
    if local is None:
        return None, at(observed(likelihood, y), None)

    def turn(local: Locals) -> tuple[float, Locals, Posterior[System]]:
        solution = at(observed(likelihood, y, local), local)
        return solution.log_evidence, required(likelihood.local(y, solution.moments())), solution

    return find_fixed_point(turn, local)


def posterior(
    invert: Callable[[Tensor], System],
    means: Means,
    observations: Observations,
    local: Locals | None,
    learns_mean: bool,
    unexplained: Float[Tensor, " rows"] | None = None,
) -> Posterior[System]:
    """The posterior given these observations; ``invert`` adds a noise to the covariance and inverts it.

    With inducing variables it is the best q(u), the value is the bound: a datum pays 1/2 lam for ``unexplained``.
    """
    targets, noise, constant = observations
    shared = noise.shape[1] > 1 and bool((noise == noise[:, :1]).all())
    system = invert(noise[:, :1] if shared else noise)
    residual, bias = targets - means, None
    if learns_mean:  # at its best: generalised least squares, for each latent function
        weights, ones = system.solve(torch.stack([residual, torch.ones_like(residual)], 2)).unbind(2)
        bias = ((ones * residual).sum(0) / ones.sum(0)).detach()
        residual, weights = residual - bias, weights - bias * ones
    else:
        weights = system.solve(residual[:, :, None])[:, :, 0]
    fit = (residual * weights).sum()
    logdets = system.logdets.sum() * (residual.shape[1] / len(system.logdets))
    value = constant - 0.5 * (fit + logdets + residual.numel() * math.log(2 * math.pi))
    found = Posterior(system, weights, value, targets, local, bias, unexplained)
    return replace(found, value=value - found.slack)


class Cavities(NamedTuple):
    """The distribution of each f_n given all other data."""

    mean: Column
    variance: Column

    def sites(self, tilted: Tilted) -> Sites:
        """Sites that give the moments of the tilted distributions. Too small a precision leaves the mean right."""
        precision = tilted.curvature / self._remaining(tilted)
        precision = precision.clamp_min(_LEAST_PRECISION * (float(precision.max()) or 1.0))
        return torch.cat([tilted.slope + precision * (self.mean + self.variance * tilted.slope), precision], 1)

    def constants(self, tilted: Tilted, sites: Sites) -> Column:
        """What makes each site integrate to Z."""
        nu, tau = sites.split(1, 1)
        grown = 1 + tau * self.variance
        exponent = nu * self.mean + 0.5 * nu.square() * self.variance - 0.5 * tau * self.mean.square()
        return tilted.log_z + 0.5 * grown.log() - exponent / grown

    def divergence(self, tilted: Tilted, sites: Sites) -> float:
        """The sum of KL(tilted || marginal), both as Gaussians."""
        nu, tau = sites.split(1, 1)
        grown = 1 + tau * self.variance
        ratio = self._remaining(tilted) * grown  # of the variances
        apart = self.variance * tilted.slope - (nu - tau * self.mean) * self.variance / grown
        return float(0.5 * (apart.square() * grown / self.variance + ratio - 1 - ratio.log()).sum())

    def _remaining(self, tilted: Tilted) -> Column:
        """The share of the cavity's variance that the tilted distribution keeps."""
        return (1 - self.variance * tilted.curvature).clamp_min(1e-10)


def _propagated(
    at: Callable[[Observations, Locals | None], Solution], likelihood: Likelihood, y: Targets, local: Locals
) -> Solution:
    """The posterior at sites that are right, sought from those of ``local`` on."""
    sites, mixing, last = local[:, :2], AndersonMixing(), math.inf
    for _ in range(MOST_TURNS):
        solution = at(Observations.of(Quadratic(sites.new_zeros(len(sites)), sites[:, :1], sites[:, 1:])), None)
        cavities = _cavities(solution)
        tilted = likelihood.tilted(y, *cavities)
        apart, asked = cavities.divergence(tilted, sites), cavities.sites(tilted)
        value = solution.value + cavities.constants(tilted, sites).sum()
        solution = replace(solution, value=value, local=torch.cat([sites, *cavities], 1))
        if apart < tolerance(sites) or not (math.isfinite(apart) and asked.isfinite().all()):
            break
        if apart > last:
            mixing.forget()
        last = apart
        sites = mixing.next(sites, sites + _DAMPING * (asked - sites))
    return solution


def _cavities(solution: Solution) -> Cavities:
    """The distribution of each f given all other data: t - alpha / diag(C^-1), with variance 1 / diag(C^-1) - noise."""
    own = 1 / solution.system.diagonals()
    least = torch.finfo(own.dtype).eps * own
    return Cavities(solution.targets - solution.weights * own, torch.maximum(own - solution.system.noise, least))


@torch.no_grad()
def missing_nats(likelihood: Likelihood, y: Targets, local: LocalSites, system: NoisyCovariance) -> float:
    """About how far the evidence of these sites lies below the log evidence.

    The first term of an expansion (Opper, Paquet and Winther 2013): tilted distributions are skew, Gaussians are not.
    With the skewness s_n of each and posterior correlations r_mn, it is 1/12 sum over m != n of s_m s_n r_mn^3.
    """
    tau, (mean, variance) = local[:, 1:2], local[:, 2:].split(1, 1)
    step = 0.02 * variance.sqrt()  # for a difference of curvatures
    before, after = (likelihood.tilted(y, mean + sign * step, variance).curvature for sign in (-1, 1))
    root = (variance / (1 + tau * variance)).sqrt()  # the standard deviation of the marginal
    skewness = (before - after) / (2 * step) * (variance / root) ** 3
    total, rows, scale = 0.0, torch.arange(len(y), device=y.device), 1 / (tau * root)
    for some in rows.split(256):  # the covariance of f is noise - noise C^-1 noise
        columns = torch.nn.functional.one_hot(some, len(y)).mT.to(scale)
        correlations = -scale * system.solve(columns[:, None])[:, 0] * scale[some].mT
        correlations[some, torch.arange(len(some), device=y.device)] = 0.0
        total += float((skewness * correlations**3 @ skewness[some]).sum())
    return abs(total) / 12
