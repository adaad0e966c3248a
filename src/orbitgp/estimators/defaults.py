"""Defaults that depend on the data: the task, from the targets, and where the kernel starts.

A kernel that the user gave keeps its values, priors and constraints. Without one, k_g is an RBF kernel whose lengthscale is the
median distance between inputs and whose variance is that of the targets. So the scale of the data does not matter, and inputs
need no standardising, which would spoil images whose background is 0.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Literal

import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from orbitgp.inference.cost import affordable, evaluation_cost, fit_seconds, free_memory
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit
from orbitgp.training.options import TrainerSettings
from orbitgp.training.quasi_newton import LEAST_SAMPLES, MOST_SAMPLES

Task = Literal["classification", "regression"]
InferenceName = Literal["auto", "exact", "sparse"]

MAX_CLASSES = 30  # whole numbers with more distinct values than this are taken for measurements
_MAX_ROWS = 1000  # the half a million distances between so many rows determine their median well enough


def initial_kernel(
    kernel: Kernel | None,
    x: Float[Tensor, "rows *features"],
    variance: float,
    generator: torch.Generator,
    feature_map: nn.Module | None = None,
) -> Kernel:
    """A copy of the user's kernel, checked on two rows, or the default one; of mapped inputs, if there is a feature map."""
    rows = (x[:2] if kernel is not None else _random_rows(x, generator)).flatten(1).double()
    if feature_map is None:
        return _kernel_of_vectors(kernel, rows, variance)
    shape = tuple(x.shape[1:]) if x.ndim > 2 else None
    mapped = FeatureMapKernel(RBFKernel(), deepcopy(feature_map), shape).double().to(x.device)
    with torch.no_grad():
        _check_map(mapped.feature_map, x[:2])
        rows = mapped.map(rows)
    mapped.base_kernel = _kernel_of_vectors(kernel, rows, variance)
    return mapped


def _kernel_of_vectors(kernel: Kernel | None, x: Float[Tensor, "rows dim"], variance: float) -> Kernel:
    if kernel is not None:
        kernel = deepcopy(kernel).double().to(x.device)
        _check_kernel(kernel, x)
        return kernel
    kernel = _rbf().to(x.device)
    kernel.base_kernel.lengthscale = median_distance(x)
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
        mapped = feature_map(x.double())
    except Exception as error:
        raise ValueError(f"the feature map {name} cannot be evaluated on inputs of shape {shape}: {_reason(error)}") from error
    if not isinstance(mapped, Tensor) or mapped.ndim != 2 or len(mapped) != len(x) or not mapped.shape[1]:
        got = tuple(mapped.shape) if isinstance(mapped, Tensor) else type(mapped).__name__
        raise ValueError(f"the feature map {name} must take {len(x)} inputs to vectors ({len(x)}, D), but gives {got}.")
    if not mapped.isfinite().all():
        raise ValueError(f"the feature map {name} takes the first inputs to numbers that are not finite.")


@torch.no_grad()
def _check_kernel(kernel: Kernel, x: Float[Tensor, "rows dim"]) -> None:
    dim = x.shape[1]
    # Kernels behind a feature map see the features of that map.
    maps = [part for part in kernel.modules() if isinstance(part, FeatureMapKernel)]
    mapped = {id(part) for outer in maps for part in outer.base_kernel.modules()}
    for part in kernel.sub_kernels():
        seen = dim if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims not in (None, 1, seen) and id(part) not in mapped:
            raise ValueError(f"the kernel has lengthscales for {part.ard_num_dims} features, but the inputs have {dim}.")
    try:
        shape = tuple(kernel(x).to_dense().shape)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ValueError(f"the kernel cannot be evaluated on inputs of {dim} features: {_reason(error)}") from error
    if shape != (len(x), len(x)):
        raise ValueError(
            f"the kernel must be of one output, without a batch shape; for {len(x)} inputs it gives shape {shape}."
        )


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _random_rows(x: Float[Tensor, "rows *features"], generator: torch.Generator) -> Float[Tensor, "some *features"]:
    """All rows, or ``_MAX_ROWS`` of them at random."""
    if len(x) <= _MAX_ROWS:
        return x
    order = torch.randperm(len(x), generator=generator, device=generator.device)
    return x[order[:_MAX_ROWS].to(x.device)]


def median_distance(x: Float[Tensor, "rows dim"]) -> float:
    """The median distance between different rows (1 where there are none)."""
    distances = torch.pdist(x)
    distances = distances[distances > 0]
    return float(distances.median()) if len(distances) else 1.0


@torch.no_grad()
def prior_variance(kernel: Kernel, x: Float[Tensor, "rows *features"]) -> float:
    """The prior variance of g, averaged over the first data."""
    return float(kernel(x[:16].flatten(1).double(), diag=True).mean())


def task_of(y: Shaped[np.ndarray, "rows *outputs"]) -> Task:
    """Classification for words, booleans and whole numbers of few distinct values; regression for everything else."""
    if y.dtype.kind in "USOb":
        return "classification"
    if y.ndim > 1 or (y.dtype.kind == "f" and np.any(y != np.round(y))):
        return "regression"
    return "classification" if len(np.unique(y)) <= min(MAX_CLASSES, len(y) // 2) else "regression"


def choose_inference(
    inference: InferenceName,
    likelihood: Likelihood,
    model: ExactGP,
    settings: TrainerSettings,
    asks_for_sparse: bool,
    memory: float | None = None,
) -> tuple[Literal["exact", "sparse"], str]:
    """Exact inference where it can be afforded, and why not, where it cannot.

    ``asks_for_sparse`` says that the user gave a number that only sparse inference has. ``memory`` stands in for the free
    memory of the device. The choice rests on sizes, threads, free memory and nominal speeds, not on a measured time.
    """
    if inference == "sparse":
        return "sparse", "inference='sparse'"
    if likelihood.couples:
        against: str | None = "the likelihood couples its latent functions"
    elif inference == "auto" and asks_for_sparse:
        against = "num_inducing or batch_size was given"
    else:
        against = _too_expensive(likelihood, model, settings, memory, limited=inference == "auto")
    if against is None:
        return "exact", "it can be afforded"
    if inference == "exact":
        raise ValueError(f"exact inference is not possible: {against}. Use inference='sparse', or fewer data.")
    return "sparse", against


def most_samples(model: ExactGP, settings: TrainerSettings) -> int:
    """The most draws of an infinite orbit with which one evaluation of the evidence takes a tenth of the time for a fit."""
    x, double = model.x, model.x.dtype == torch.float64
    samples = LEAST_SAMPLES
    while samples < MOST_SAMPLES:
        cost = evaluation_cost(len(x), 2 * samples, x[0].numel(), double=double)
        if cost.seconds(x.device, torch.get_num_threads()) > settings.exact_seconds / 10:
            break
        samples *= 2
    return samples


def _too_expensive(
    likelihood: Likelihood, model: ExactGP, settings: TrainerSettings, memory: float | None, limited: bool
) -> str | None:
    x = model.x
    samples = model.orbit.size if isinstance(model.orbit, FiniteOrbit) else settings.num_samples or LEAST_SAMPLES
    with torch.no_grad():
        model.num_samples = 1
        dim = model.features(x[:1]).shape[-1]
        model.num_samples = None
    double = x.dtype == torch.float64
    # Local parameters and the posterior take turns, in every evaluation; their noises differ everywhere.
    factorisations = 8 * likelihood.num_latents if likelihood.num_locals else 1
    cost = evaluation_cost(len(x), samples, dim, factorisations, double)
    seconds = fit_seconds(len(x), samples, dim, x.device, torch.get_num_threads(), factorisations, double)
    limit = min(settings.exact_seconds, settings.max_seconds or math.inf) if limited else math.inf
    return affordable(cost, seconds, limit, free_memory(x.device) if memory is None else memory)
