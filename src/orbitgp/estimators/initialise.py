"""Where a fit starts: the problem as a model sees it, the kernel, the models and the engines, before their first step.

A kernel that the user gave keeps its values, priors and constraints. Without one, k_g is an RBF kernel whose
lengthscale is the median distance between inputs and whose variance is that of the targets. So the scale of the data
does not matter, and inputs need no standardising, which would spoil images whose background is 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.estimators.session import Session
from orbitgp.estimators.validation import asks_for_sparse, check_kernel, check_map
from orbitgp.inference import processes
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs, fetch, first
from orbitgp.kernels.feature_maps import FeatureMapKernel, prepare
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, GaussianNoise, Orbit
from orbitgp.planning.cost import workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import Plan, inducing_size, make_plan
from orbitgp.planning.rungs import CHECKED_ROWS
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.ladder import Ladder


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
    """A fit before its first step: data, orbit, kernel, problem, the arguments of the estimator, and the run."""

    x: AllInputs
    orbit: Orbit
    kernel: Kernel
    problem: Problem
    arguments: Mapping[str, Any]
    settings: TrainerSettings
    run: Session
    seeds: Seeds


def spare_indicators(orbit: Orbit, x: AllInputs) -> None:
    """Let noise leave out columns of a table that do not vary, or that hold only 0 and 1, as indicators of words do."""
    noises = [part for part in orbit.modules() if isinstance(part, GaussianNoise) and part.columns is None]
    if x.ndim > 2 or not noises:
        return
    rows = first(x, len(x) if isinstance(x, Tensor) else CHECKED_ROWS)
    measured = (rows != rows[0]).any(0) & ~((rows == 0) | (rows == 1)).all(0)
    for part in noises:
        part.columns = tuple(measured.nonzero()[:, 0].tolist()) if 0 < int(measured.sum()) < len(measured) else None


def exact_model_and_plan(fit: Fit) -> tuple[ExactGP | None, Plan]:
    """The exact model before its first step, whether it can be afforded, and why; None if data are not one tensor."""
    arguments, likelihood = fit.arguments, fit.problem.likelihood
    if not isinstance(fit.x, Tensor):
        lie = "are shared by several processes" if processes.count() > 1 else "stay on disk"
        if arguments["inference"] == "exact":
            raise ValueError(f"inference='exact' needs all data in one place, but they {lie}: take 'auto' or 'sparse'.")
        return None, Plan("sparse", f"the data {lie}", len(fit.x))
    model = ExactGP(fit.kernel, fit.orbit, fit.x, likelihood.num_latents, arguments["mean"]).to(fit.x.device)
    _start_mean(model, fit)
    given = arguments["num_samples"], asks_for_sparse(arguments)
    plan = make_plan(arguments["inference"], likelihood, model, fit.settings, *given)
    if plan.seconds is None or arguments["max_steps"] is None:
        return model, plan
    step = workload(model, likelihood, arguments["num_samples"]).evaluation_seconds(plan.learn_rows)
    return model, replace(plan, seconds=min(plan.seconds, arguments["max_steps"] * step))


def initial_kernel(
    kernel: Kernel | None,
    x: AllInputs,
    variance: float,
    generator: torch.Generator,
    feature_map: nn.Module | None = None,
    ard: bool = False,
) -> Kernel:
    """A copy of the user's kernel, checked on two rows, or the default; of mapped inputs, if there is a feature map."""
    some = first(x, 2) if kernel is not None and feature_map is None else _random_rows(x, generator)
    rows = some.flatten(1).double()
    if ard:  # automatic relevance determination: two rows are about one lengthscale apart in each column
        spread = rows.std(0, correction=0)
        spread[spread <= 1e-10 * rows.abs().amax(0)] = 1.0  # of a column that does not vary
        return _rbf(math.sqrt(2 * rows.shape[1]) * spread, variance, rows.shape[1]).to(x.device)
    if feature_map is None:
        return _of_vectors(kernel, rows, variance)
    shape = tuple(x.shape[1:]) if x.ndim > 2 else None
    mapped = FeatureMapKernel(RBFKernel(), deepcopy(feature_map), shape).double().to(x.device)
    prepare(mapped.feature_map, some)
    with torch.no_grad():
        check_map(mapped.feature_map, first(x, 2))
        rows = mapped.map(rows if kernel is None else rows[:2])
    # Features are rounded as the inputs are: those of nearly equal inputs differ by chance.
    mapped.base_kernel = _of_vectors(kernel, rows, variance, rounding=10 * torch.finfo(x.dtype).eps)
    return mapped


def _of_vectors(kernel: Kernel | None, x: Float[Tensor, "rows dim"], variance: float, rounding: float = 0.0) -> Kernel:
    if kernel is not None:
        kernel = deepcopy(kernel).double().to(x.device)
        check_kernel(kernel, x)
        return kernel
    distances = torch.pdist(x)
    distances = distances[distances > rounding * float(x.norm(dim=1).max())]  # without rows equal up to rounding
    return _rbf(float(distances.median()) if len(distances) else 1.0, variance).to(x.device)


def _rbf(lengthscale: float | Float[Tensor, " dim"], variance: float, dim: int | None = None) -> ScaleKernel:
    """Learned on the log scale: a step of the optimiser changes it by the same factor in any units of the data."""
    log_scale = {"transform": torch.exp, "inv_transform": torch.log}
    inner = RBFKernel(ard_num_dims=dim, lengthscale_constraint=Positive(**log_scale))
    kernel = ScaleKernel(inner, outputscale_constraint=Positive(**log_scale)).double()
    kernel.base_kernel.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)  # numbers become float32
    kernel.outputscale = torch.tensor(variance if variance > 0 else 1.0, dtype=torch.float64)
    return kernel


def _random_rows(x: AllInputs, generator: torch.Generator) -> Float[Tensor, "some *features"]:
    """All rows, or some of them at random."""
    if len(x) <= CHECKED_ROWS:
        return first(x, len(x))
    order = torch.randperm(len(x), generator=generator, device=generator.device)
    return fetch(x, order[:CHECKED_ROWS].to(x.device))


def sparse_model(fit: Fit, generator: torch.Generator) -> InvariantGP:
    """The sparse model before the first step: mean as the targets suggest, inducing points from the data."""
    x, orbit, kernel, likelihood = fit.x, fit.orbit, fit.kernel, fit.problem.likelihood
    asked = fit.arguments["num_inducing"], fit.settings.inducing_samples
    size, averaged = inducing_size(*asked, len(x), orbit, x.device)
    with torch.no_grad():
        variance = float(kernel(first(x, 16).flatten(1).double(), diag=True).mean())  # of g, at the first data
    model = InvariantGP(
        kernel,
        orbit,
        initial_inducing(x, orbit, kernel, size, "random" if fit.run.only_plans else None, generator, averaged),
        num_latents=likelihood.num_latents,
        mean=fit.arguments["mean"],
        shared_covariance=likelihood.shares_curvature,
        jitter=fit.settings.jitter * variance,
        inducing_samples=averaged,
    ).to(x.device)
    _start_mean(model, fit)
    return model


@torch.no_grad()
def _start_mean(model: InvariantGP | ExactGP, fit: Fit) -> None:
    """The prior mean as the targets suggest, in units of what g sees: orbit samples of the data."""
    if fit.arguments["mean"] == "linear":
        samples = None if isinstance(model.orbit, FiniteOrbit) else 4
        drawn = model.orbit.shared_samples(first(fit.x, CHECKED_ROWS), samples)
        model.prior_mean.place(drawn.points.flatten(0, 2).flatten(1))
    if fit.arguments["mean"] != "zero":
        model.prior_mean.bias.copy_(fit.problem.mean)


def exact_engine(model: ExactGP, fit: Fit, plan: Plan) -> Ladder:
    """Learns the exact model, on the rungs of the plan."""
    likelihood, settings = fit.problem.likelihood, fit.settings
    several = settings.start_rows > 0
    engine = Ladder(
        model=model,
        likelihood=likelihood,
        x=model.x,
        y=fit.problem.y,
        rungs=plan.ladder if several else plan.ladder[-1:],
        options=settings,
        several=several,
        limit=TimeLimit(settings.max_seconds, plan.learn_rows, len(model.x), workload(model, likelihood, plan.draws)),
        max_steps=fit.arguments["max_steps"],
        planned=plan.seconds or 0.0,
    )
    engine.seconds = time.perf_counter() - fit.run.begun  # of the limit
    return engine
