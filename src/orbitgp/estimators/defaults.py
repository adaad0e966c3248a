"""Defaults that depend on the data: the task, from the targets, and where the kernel starts.

A kernel that the user gave keeps its values, priors and constraints. Without one, k_g is an RBF kernel whose lengthscale is the
median distance between inputs and whose variance is that of the targets. So the scale of the data does not matter, and inputs
need no standardising, which would spoil images whose background is 0.
"""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.rows import RowSource, fetch, first
from orbitgp.kernels.feature_maps import FeatureMapKernel

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
