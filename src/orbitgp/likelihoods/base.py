"""Likelihoods as quadratic bounds.

Every likelihood here is used through one inequality, for each datum,

    log p(y | f) >= const + eta . f - 1/2 lam . f^2        for any value of its local parameters,

so the expected log likelihood needs only the first two moments of q(f). Both have unbiased estimates. The Gaussian is
such a quadratic itself. A super-Gaussian likelihood (logistic, Student-t) is the upper envelope of many quadratics, one
for each value of a local parameter. The constants are kept: without them bounds cannot be compared.

A likelihood is four small methods: ``local`` (the best local parameters, given moments of q(f)), ``quadratic`` (the
bound at given ones), ``log_prob`` (the exact log density) and ``predictive`` (the distribution of a new y). Two classes
write most of them: :class:`~orbitgp.likelihoods.noise.Noise` and
:class:`~orbitgp.likelihoods.classification.Classification`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods.predictive import Categorical, CountMixture, ScaleMixture
from orbitgp.likelihoods.tilted import Tilted

Latents = Float[Tensor, "rows latents"]  # a mean, a variance, a precision … of every f
Locals = Float[Tensor, "rows *params"]
Targets = Float[Tensor, "rows *outputs"]
Values = Float[Tensor, "*samples rows latents"]  # f itself, at any number of samples
LogProbs = Float[Tensor, "*samples rows"]

_SMALLEST = 1e-12  # of E x^2, so that its root has a gradient


class Moments(NamedTuple):
    """E f and E f^2 for each datum and latent function."""

    mean: Latents
    second: Latents


class Quadratic(NamedTuple):
    """const + eta . f - 1/2 lam . f^2 for each datum."""

    const: Float[Tensor, " rows"]
    eta: Latents
    lam: Latents

    def expectation(self, moments: Moments) -> Float[Tensor, " rows"]:
        """E_q of the quadratic. It is linear in the moments, so unbiased moments give an unbiased expectation."""
        return self.const + (self.eta * moments.mean - 0.5 * self.lam * moments.second).sum(-1)


def required(local: Locals | None) -> Locals:
    """The local parameters, for a bound that needs them."""
    if local is None:
        raise ValueError("this likelihood needs local parameters: take them from likelihood.local(y, moments).")
    return local


def root_second(second: Float[Tensor, "*shape"], mean: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """sqrt(E x^2), the best local parameter of many bounds, from estimates of E x^2 and E x.

    An unbiased estimate of E x^2 may be negative. It is clamped only here, inside the root, at its least value (E x)^2.
    """
    return torch.maximum(second, mean.square()).clamp_min(_SMALLEST).sqrt()


def log_normal(r: Float[Tensor, "*shape"], variance: Float[Tensor, "*anyshape"]) -> Float[Tensor, "*shape"]:
    """The log of N(r; 0, variance)."""
    return -0.5 * (torch.log(2 * math.pi * variance) + r.square() / variance)


class Likelihood(nn.Module):
    """One likelihood: its local parameters, its quadratic, its log density and its predictive distribution.

    ``y`` has one row for each datum: real targets (N, L), or classes as ``Classification.encode`` writes them. A
    likelihood may ask for further columns, of what is known of each datum.
    """

    num_latents: int
    num_locals: int = 0  # local parameters for each datum; every real value gives a valid bound
    shares_curvature: bool = False  # True if ``lam`` is the same for all latent functions, so one covariance serves all

    def local(self, y: Targets, moments: Moments) -> Locals | None:
        """The local parameters at which the bound is best, given the moments of q(f); None if there are none.

        The moments must not come from the draws that score the bound: that would make it optimistic. They may be noisy
        estimates, and the result is finite for all of them. The result carries no gradient: at the optimum the bound
        does not change with its local parameters, to first order.
        """
        return None

    def observations(self, y: Targets) -> tuple[Latents, Latents] | None:
        """Targets and noise variances, if the likelihood is that of Gaussian observations of f."""
        return None

    def quadratic(self, y: Targets, local: Locals | None) -> Quadratic:
        """The quadratic at these local parameters; to be defined unless there are :meth:`observations`."""
        given = self.observations(y)
        if given is None:
            raise NotImplementedError(f"{type(self).__name__} must define quadratic(y, local).")
        targets, noise = given
        return Quadratic(log_normal(targets, noise).sum(-1), targets / noise, 1 / noise)

    @property
    def knows_tilted(self) -> bool:
        """Whether the likelihood defines :meth:`tilted`."""
        return type(self).tilted is not Likelihood.tilted

    def tilted(self, y: Targets, mean: Latents, variance: Latents) -> Tilted:
        """The mean of p(y | f) over f ~ N(mean, variance), and its derivatives (:mod:`orbitgp.likelihoods.tilted`).

        Optional, for a log-concave likelihood of one latent function. Where it is defined, exact inference is by
        expectation propagation, not by the bound.
        """
        raise NotImplementedError(f"{type(self).__name__} must define tilted(y, mean, variance).")

    def log_prior(self) -> Float[Tensor, ""]:
        """The log density of a prior on the parameters, added to the evidence in learning; none by default."""
        return torch.zeros((), dtype=torch.float64)

    def log_prob(self, y: Targets, f: Values) -> LogProbs:
        """The exact log density of y given f."""
        raise NotImplementedError(f"{type(self).__name__} must define log_prob(y, f).")

    def predictive(self, mean: Latents, variance: Latents) -> Categorical | CountMixture | ScaleMixture:
        """The distribution of a new y in each row when f ~ N(mean, diag variance).

        It is deterministic, and no row depends on another.
        """
        raise NotImplementedError(f"{type(self).__name__} must define predictive(mean, variance).")
