"""What a fit begins with: the data and the problem as a model sees them, and the models before their first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.estimators.data import Inputs
from orbitgp.estimators.defaults import prior_variance
from orbitgp.estimators.session import Run
from orbitgp.estimators.validation import inducing_count
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import first
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import inducing_samples

MEAN_ROWS = 256  # data that tell where inputs lie and how far apart


class Seeds(NamedTuple):
    """Three seeds: what is fitted to the draws of one is scored on those of another."""

    training: int
    start: int
    evidence: int


class Problem(NamedTuple):
    """What is to be learned, as the model sees it: targets, their likelihood, and where the prior of f starts."""

    y: Float[Tensor, "rows outputs"]
    likelihood: Likelihood
    variance: float
    mean: Float[Tensor, " latents"]
    log_scale: float = 0.0  # sum over outputs of the log of what targets were divided by

    @property
    def shift(self) -> float:
        """By how much bounds of the scaled targets lie above those in the units of y."""
        return len(self.y) * self.log_scale

    def to(self, device: torch.device) -> Problem:
        return self._replace(y=self.y.to(device), likelihood=self.likelihood.to(device))


class Fit(NamedTuple):
    """What a fit begins with: the data, orbit and kernel before training, the arguments of the estimator, and the run."""

    x: Inputs
    orbit: Orbit
    kernel: Kernel
    problem: Problem
    arguments: Mapping[str, Any]
    settings: TrainerSettings
    run: Run
    seeds: Seeds


def exact_model(x: Float[Tensor, "rows *features"], fit: Fit) -> ExactGP:
    """The exact model before the first step; nothing has been computed yet."""
    model = ExactGP(fit.kernel, fit.orbit, x, fit.problem.likelihood.num_latents, fit.arguments["mean"]).to(x.device)
    _start_mean(model, fit)
    return model


def sparse_model(fit: Fit, generator: torch.Generator) -> InvariantGP:
    """The sparse model before the first step: mean as the targets suggest, inducing points from the data."""
    x, orbit, kernel, settings, likelihood = fit.x, fit.orbit, fit.kernel, fit.settings, fit.problem.likelihood
    averaged = inducing_samples(settings.inducing_samples, orbit)
    size = inducing_count(fit.arguments["num_inducing"], len(x), orbit, averaged)
    model = InvariantGP(
        kernel,
        orbit,
        initial_inducing(x, orbit, kernel, size, None, generator, averaged),
        num_latents=likelihood.num_latents,
        mean=fit.arguments["mean"],
        shared_covariance=likelihood.shares_curvature,
        jitter=settings.jitter * prior_variance(kernel, x),
        inducing_samples=averaged,
    ).to(x.device)
    _start_mean(model, fit)
    return model


@torch.no_grad()
def _start_mean(model: InvariantGP | ExactGP, fit: Fit) -> None:
    """The prior mean as the targets suggest, in units of what g sees: orbit samples of the data."""
    if fit.arguments["mean"] == "linear":
        samples = None if isinstance(model.orbit, FiniteOrbit) else 4
        model.prior_mean.place(model.orbit.shared_samples(first(fit.x, MEAN_ROWS), samples).points.flatten(0, 2).flatten(1))
    if fit.arguments["mean"] != "zero":
        model.prior_mean.bias.copy_(fit.problem.mean)
