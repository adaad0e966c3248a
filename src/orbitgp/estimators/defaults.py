"""Defaults that depend on the data: the task, from the targets, and where the kernel starts.

A kernel that the user gave keeps its values, priors and constraints. Without one, k_g is an RBF kernel whose lengthscale is the
median distance between inputs and whose variance is that of the targets. So the scale of the data does not matter, and inputs
need no standardising, which would spoil images whose background is 0.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.cost import CONDITIONING, FIRST_SAMPLES, LEAST_SAMPLES, Workload, affordable
from orbitgp.inference.device_speed import reckoned_seconds
from orbitgp.inference.exact import ExactGP, workload
from orbitgp.inference.rows import RowSource, fetch, first
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.training.budget import EVALUATIONS, PATIENCE, for_learning, most_inducing, seconds_on
from orbitgp.training.collapsed_climb import may_see_all
from orbitgp.training.options import TrainerSettings

InferenceName = Literal["auto", "exact", "sparse"]

NUM_INDUCING = 256
POINTS_PER_DATUM = 8  # of few data, to see its orbit; averages see several elements each, and are fewer
INDUCING_SAMPLES = 8  # over which each inducing variable averages: more gain little and cost as much again
INDUCING_ELEMENTS = 32  # of a finite orbit of up to so many elements, inducing variables average over all
LEAST_ROWS = 300  # fewer say too little to learn an orbit from
_MAX_ROWS = 1000  # the half a million distances between so many rows determine their median well enough


def initial_kernel(
    kernel: Kernel | None,
    x: Float[Tensor, "rows *features"] | RowSource,
    variance: float,
    generator: torch.Generator,
    feature_map: nn.Module | None = None,
) -> Kernel:
    """A copy of the user's kernel, checked on two rows, or the default one; of mapped inputs, if there is a feature map."""
    rows = (first(x, 2) if kernel is not None else _random_rows(x, generator)).flatten(1).double()
    if feature_map is None:
        return _kernel_of_vectors(kernel, rows, variance)
    shape = tuple(x.shape[1:]) if x.ndim > 2 else None
    mapped = FeatureMapKernel(RBFKernel(), deepcopy(feature_map), shape).double().to(x.device)
    with torch.no_grad():
        _check_map(mapped.feature_map, first(x, 2))
        rows = mapped.map(rows)
    # Features are rounded as the inputs are: those of nearly equal inputs differ by chance.
    mapped.base_kernel = _kernel_of_vectors(kernel, rows, variance, rounding=10 * torch.finfo(x.dtype).eps)
    return mapped


def _kernel_of_vectors(kernel: Kernel | None, x: Float[Tensor, "rows dim"], variance: float, rounding: float = 0.0) -> Kernel:
    if kernel is not None:
        kernel = deepcopy(kernel).double().to(x.device)
        _check_kernel(kernel, x)
        return kernel
    kernel = _rbf().to(x.device)
    kernel.base_kernel.lengthscale = median_distance(x, rounding)
    kernel.outputscale = variance if variance > 0 else 1.0
    return kernel


def _rbf(dim: int | None = None) -> ScaleKernel:
    """Learned on the log scale: a step of the optimiser changes it by the same factor whatever the units of the data."""
    log_scale = {"transform": torch.exp, "inv_transform": torch.log}
    inner = RBFKernel(ard_num_dims=dim, lengthscale_constraint=Positive(**log_scale))
    return ScaleKernel(inner, outputscale_constraint=Positive(**log_scale)).double()


def ard_kernel(dim: int) -> ScaleKernel:
    """An RBF kernel with a lengthscale for each of these standardised inputs (automatic relevance determination)."""
    kernel = _rbf(dim)
    kernel.base_kernel.lengthscale = math.sqrt(2 * dim)  # about the distance between two rows
    kernel.outputscale = 1.0
    return kernel


def _check_map(feature_map: nn.Module, x: Float[Tensor, "rows *features"]) -> None:
    name, shape = type(feature_map).__name__, tuple(x.shape[1:])
    try:
        mapped, first = feature_map(x.double()), feature_map(x[:1].double())
    except Exception as error:
        raise ValueError(f"the feature map {name} cannot be evaluated on inputs of shape {shape}: {_reason(error)}") from error
    if not isinstance(mapped, Tensor) or mapped.ndim < 2 or len(mapped) != len(x) or not mapped[0].numel():
        got = tuple(mapped.shape) if isinstance(mapped, Tensor) else type(mapped).__name__
        raise ValueError(f"the feature map {name} must take {len(x)} inputs to vectors ({len(x)}, D), but gives {got}.")
    if not mapped.isfinite().all():
        raise ValueError(f"the feature map {name} takes the first inputs to numbers that are not finite.")
    if not torch.allclose(first, mapped[:1], rtol=1e-4, atol=1e-4 * float(mapped.abs().max())):
        raise ValueError(
            f"the feature map {name} takes an input alone to other numbers than with another beside it, or at another time: "
            "put it into evaluation mode, with .eval()."
        )


@torch.no_grad()
def _check_kernel(kernel: Kernel, x: Float[Tensor, "rows dim"]) -> None:
    dim = x.shape[1]
    _check_lengthscales(kernel, dim)
    try:
        shape = tuple(kernel(x).to_dense().shape)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ValueError(f"the kernel cannot be evaluated on inputs of {dim} features: {_reason(error)}") from error
    if shape != (len(x), len(x)):
        raise ValueError(
            f"the kernel must be of one output, without a batch shape; for {len(x)} inputs it gives shape {shape}."
        )


def _check_lengthscales(part: nn.Module, dim: int) -> None:
    """Refuse lengthscales for another number of features than this part of a kernel sees: some columns, or all."""
    if isinstance(part, Kernel):
        dim = dim if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims not in (None, 1, dim):
            raise ValueError(f"the kernel has lengthscales for {part.ard_num_dims} features, but the inputs have {dim}.")
    if not isinstance(part, FeatureMapKernel):  # behind it are the features of its map
        for inner in part.children():
            _check_lengthscales(inner, dim)


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _random_rows(x: Float[Tensor, "rows *features"] | RowSource, generator: torch.Generator) -> Float[Tensor, "some *features"]:
    """All rows, or ``_MAX_ROWS`` of them at random."""
    if len(x) <= _MAX_ROWS:
        return first(x, len(x))
    order = torch.randperm(len(x), generator=generator, device=generator.device)
    return fetch(x, order[:_MAX_ROWS].to(x.device))


def median_distance(x: Float[Tensor, "rows dim"], rounding: float = 0.0) -> float:
    """The median distance between rows that differ by more than rounding, as a share of their norm (1 where none do)."""
    distances = torch.pdist(x)
    distances = distances[distances > rounding * float(x.norm(dim=1).max())]
    return float(distances.median()) if len(distances) else 1.0


@torch.no_grad()
def prior_variance(kernel: Kernel, x: Float[Tensor, "rows *features"] | RowSource) -> float:
    """The prior variance of g, averaged over the first data."""
    return float(kernel(first(x, 16).flatten(1).double(), diag=True).mean())


class Choice(NamedTuple):
    """How to infer, and why. Exact inference learns from so many rows, with so many draws of an infinite orbit at most."""

    inference: Literal["exact", "sparse"]
    reason: str
    learn_rows: int = 0
    most_samples: int = LEAST_SAMPLES


def choose_inference(
    inference: InferenceName,
    likelihood: Likelihood,
    model: ExactGP,
    settings: TrainerSettings,
    num_samples: int | None,
    asks_for_sparse: bool,
) -> Choice:
    """Exact inference where it can be afforded, and why not, where it cannot.

    It learns from all rows, or from some of them where that is all that time and memory allow, and conditions on all.
    ``num_samples`` are the draws that the user asked for. ``asks_for_sparse`` says that the user gave a number that only
    sparse inference has. The choice rests on sizes, free memory and the kind of device, not on a measured time or on threads.
    """
    if inference == "sparse":
        return Choice("sparse", "inference='sparse'")
    if likelihood.couples:
        found: Choice | str = "the likelihood couples its latent functions"
    elif inference == "auto" and asks_for_sparse:
        found = "num_inducing or batch_size was given"
    else:
        found = _exact_choice(workload(model, likelihood, num_samples), model, settings, num_samples, inference == "exact")
    if isinstance(found, Choice):
        return found
    if inference == "exact":
        raise ValueError(f"exact inference is not possible: {found}. Use inference='sparse', or fewer data.")
    return Choice("sparse", found)


def inducing_samples(asked: int | None, orbit: Orbit) -> int:
    """Over how many orbit samples each inducing variable averages: no more than a finite orbit has elements."""
    size = orbit.size if isinstance(orbit, FiniteOrbit) else None
    if asked is None:
        return size if size is not None and size <= INDUCING_ELEMENTS else INDUCING_SAMPLES
    return asked if size is None else min(asked, size)


def many_inducing(model: ExactGP, likelihood: Likelihood, settings: TrainerSettings) -> int | None:
    """On a GPU, how many inducing points there is time for, if more than usual; None for the usual number.

    Only where the bound of all rows is climbed: in the same time, stochastic steps with as many points come less far.
    """
    x, orbit = model.x, model.orbit
    if x.device.type == "cpu" or not may_see_all(likelihood, len(x), settings):
        return None
    work = _drawn(workload(model, likelihood, settings.climb_samples), orbit, settings)
    fixed = isinstance(orbit, FiniteOrbit) or settings.climb_samples is not None
    covariances = (1 if likelihood.shares_curvature else likelihood.num_latents) * work.turns
    averaged, limit = inducing_samples(settings.inducing_samples, orbit), seconds_on(x.device, for_learning(settings))
    early = work.samples if fixed else FIRST_SAMPLES
    return most_inducing(work, early, len(x), averaged, covariances, limit, free_memory(x.device))


def _exact_choice(
    work: Workload, model: ExactGP, settings: TrainerSettings, num_samples: int | None, forced: bool
) -> Choice | str:
    """Exact inference on all rows, or learned from some; or what stands against it.

    Where sparse inference would be slow, exact inference may take as long.
    """
    if forced:
        return _within(settings.exact_seconds, work, model, num_samples, forced)
    limit = reckoned_seconds(settings.max_seconds or math.inf, model.x.device)
    found = _within(min(settings.exact_seconds, limit), work, model, num_samples, forced)
    patience = PATIENCE * settings.exact_seconds
    if isinstance(found, str) and _sparse_seconds(work, model, settings) > patience:
        patient = _within(min(patience, limit), work, model, num_samples, forced)
        return patient if isinstance(patient, Choice) else found
    return found


def _sparse_seconds(work: Workload, model: ExactGP, settings: TrainerSettings) -> float:
    """What sparse inference would take on a CPU. Its stochastic steps see no more rows at a time; a GPU makes them quickly."""
    if model.x.device.type != "cpu":
        return 0.0
    rows = min(len(model.x), settings.posterior_rows)
    cost = _drawn(work, model.orbit, settings).collapsed(
        rows, min(NUM_INDUCING, rows), inducing_samples(None, model.orbit), work.covariances
    )
    return EVALUATIONS * cost.seconds


def _drawn(work: Workload, orbit: Orbit, settings: TrainerSettings) -> Workload:
    """The same with draws of an infinite orbit, which sparse inference needs even where k_f has a closed form."""
    return work if isinstance(orbit, FiniteOrbit) else replace(work, samples=settings.climb_samples or LEAST_SAMPLES)


def _within(seconds: float, work: Workload, model: ExactGP, num_samples: int | None, forced: bool) -> Choice | str:
    """Exact inference in this time, or what stands against it. Where it is forced, conditioning may take any time."""
    rows, memory = len(model.x), free_memory(model.x.device)
    fixed = model.is_enumerated or num_samples is not None
    learning = work.learning(rows)
    against = affordable(learning, seconds, memory)
    if against is None:
        draws = work.samples if fixed else work.most_samples(rows, rows, seconds, memory)
        return Choice("exact", "it can be afforded", rows, draws)
    for samples in (work.samples,) if fixed else (work.samples, work.samples // 2, work.samples // 4):
        fewer = replace(work, samples=samples)
        conditioning = fewer.conditioning(rows)
        if affordable(conditioning, math.inf if forced else CONDITIONING * seconds, memory) is not None:
            continue
        learn_rows = fewer.most_rows(max(seconds - conditioning.seconds, (1 - CONDITIONING) * seconds), memory, rows)
        if learn_rows >= LEAST_ROWS:
            reason = f"learned on {learn_rows:,} of {rows:,} rows, conditioned on all"
            draws = samples if fixed else fewer.most_samples(learn_rows, rows, seconds, memory)
            return Choice("exact", reason, learn_rows, draws)
    if affordable(conditioning, math.inf, memory) is None:  # with the fewest draws there is memory, but no time
        against = affordable(learning, seconds, math.inf) or against
    enough_memory = affordable(work.evaluation(rows), math.inf, memory) is None
    if enough_memory and rows <= NUM_INDUCING and work.samples <= LEAST_SAMPLES:
        return Choice("exact", "as many inducing points as data would save no time", rows, work.samples)
    return against
