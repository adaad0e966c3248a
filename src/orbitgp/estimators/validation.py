"""The arguments of an estimator, checked: one clear sentence for each value that makes no sense.

A constructor of scikit-learn takes anything and ``fit`` complains, so these checks run first in ``fit``. An argument of
None means the library's default: that of :class:`orbitgp.planning.options.TrainerSettings`, where there is one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from orbitgp.inference import processes
from orbitgp.inference.prior import MeanName
from orbitgp.inference.rows import AllInputs, first
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.planning.options import TrainerSettings, TrainingOptions, one_of, positive_number, whole_number
from orbitgp.planning.plan import InferenceName, inducing_size

_OBJECTS = (
    ("orbit", Orbit | str, "an orbitgp.orbits.Orbit, its name"),
    ("kernel", Kernel, "a gpytorch.kernels.Kernel"),
    ("feature_map", nn.Module, "a torch.nn.Module"),
    ("training", TrainingOptions, "an orbitgp.TrainingOptions"),
)
_FOR_EXACT_TOO = {"dtype", "exact_seconds", "num_predict_samples", "start_rows"}
_OF_TRAINER = ("num_samples", "max_steps", "max_seconds", "batch_size")


def check_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with plain Python numbers, or TypeError or ValueError in one sentence."""
    checked = dict(arguments)
    for name in ("num_inducing", *_OF_TRAINER):
        if arguments[name] is not None:
            checked[name] = (positive_number if name == "max_seconds" else whole_number)(name, arguments[name])
    one_of("mean", arguments["mean"], get_args(MeanName))
    one_of("inference", arguments["inference"], get_args(InferenceName))
    for name, kind, described in _OBJECTS:
        _check_object(name, arguments[name], kind, described)
    if not isinstance(ard := arguments["ard"], bool | np.bool_) and ard != "auto":
        raise ValueError(f"ard must be True, False or 'auto', got {ard!r}.")
    checked["ard"] = ard if ard == "auto" else bool(ard)
    if not isinstance(arguments.get("normalize_y", True), bool | np.bool_):
        raise TypeError(f"normalize_y must be True or False, got {arguments['normalize_y']!r}.")
    return checked


def check_distances(x: Any) -> None:
    """Refuse inputs that are so large that squared distances between them are infinite."""
    largest = max(float(x.max()), -float(x.min()))
    if not math.isfinite(4 * math.prod(x.shape[1:]) * largest * largest):
        raise ValueError(f"X holds {largest:.3g}, and distances between such inputs are infinite: take a larger unit.")


@torch.no_grad()
def check_orbit(orbit: Orbit, inputs: AllInputs) -> None:
    """Refuse an orbit whose transformations of the first inputs do not have the shape of inputs, or are not finite."""
    x = first(inputs, 2)
    check_distances(inputs if isinstance(inputs, Tensor) else x)
    method, count = ("elements", orbit.size) if isinstance(orbit, FiniteOrbit) else ("transform", 3)
    points = orbit.shared_samples(x, count).points[:, 0]
    found, expected = tuple(points.shape), (len(x), count, *x.shape[1:])
    # A product may have a multiple of the draws: all elements of its finite factors.
    if (*found[:1], *found[2:]) != (len(x), *x.shape[1:]) or found[1] % count:
        what = f"the {count} samples of {len(x)} inputs of shape {tuple(x.shape[1:])} have the shape {expected}"
        raise ValueError(f"{what}, but {type(orbit).__name__}.{method} gives {found}.")
    if not points.isfinite().all():
        raise ValueError(f"{type(orbit).__name__}.{method} takes the first inputs to numbers that are not finite.")


def ard_for(arguments: Mapping[str, Any], x: AllInputs) -> bool | Literal["auto"]:
    """Whether columns have their own lengthscales; ``auto`` where the evidence is to say. Only tables have columns."""
    ard: bool | Literal["auto"] = arguments["ard"]
    if arguments["kernel"] is None and arguments["feature_map"] is None and x.ndim == 2:
        return ard if ard != "auto" or x.shape[1] > 1 else False
    if ard is True:
        raise ValueError("ard=True is for the default kernel of tables: omit ard, or kernel, feature_map and images.")
    return False


def asks_for_sparse(arguments: Mapping[str, Any]) -> bool:
    """Whether an argument or option was given that only sparse inference has."""
    changed = training_options(arguments["training"]).changed()
    return any(arguments[n] is not None for n in ("num_inducing", "batch_size")) or bool(changed - _FOR_EXACT_TOO)


def training_options(training: Any) -> TrainingOptions:
    """The options that the user gave, or the library's."""
    _check_object("training", training, TrainingOptions, "an orbitgp.TrainingOptions")
    return TrainingOptions() if training is None else training


def _check_object(name: str, value: Any, kind: Any, described: str) -> None:
    if isinstance(value, type):
        raise TypeError(f"{name} must be an instance, got the class {value.__name__}: write {value.__name__}(...).")
    # Settings of a trainer are options too, but they name a budget and a seed, which here are arguments of their own.
    if value is not None and (not isinstance(value, kind) or isinstance(value, TrainerSettings)):
        raise TypeError(f"{name} must be {described} or None, got {type(value).__name__}.")


def trainer_settings(arguments: Mapping[str, Any], orbit: Orbit, seed: int) -> TrainerSettings:
    """Options and arguments of an estimator in one object; ``num_samples=None`` where a finite orbit is enumerated."""
    given = {name: arguments[name] for name in _OF_TRAINER if arguments[name] is not None}
    settings = TrainerSettings(**training_options(arguments["training"]).get_params(), **given, seed=seed)
    if not isinstance(orbit, FiniteOrbit):
        return replace(settings, climb_samples=arguments["num_samples"])
    if settings.num_samples is not None and settings.num_samples >= orbit.size:
        return replace(settings, num_samples=None)
    if settings.num_samples == 1:
        raise ValueError(f"num_samples must be at least 2 for an orbit of {orbit.size} elements, got 1.")
    return settings


def as_numbers(targets: np.ndarray) -> np.ndarray:
    """Targets of a regression."""
    try:
        return targets.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"targets of a regression are numbers ({error}): take InvariantGPClassifier.") from None


def per_row(name: str, values: Any, rows: int) -> Float[np.ndarray, " rows"]:
    """A number for each row: a weight must be positive, and a variance must not be negative."""
    found, least = np.asarray(values, dtype=np.float64), "above" if name == "sample_weight" else "at least"
    if found.shape not in ((), (rows,)):
        raise ValueError(f"{name} must be a number for each of {rows} rows, got the shape {found.shape}.")
    if not np.isfinite(found).all() or found.min() < 0 or (least == "above" and found.min() == 0):
        raise ValueError(f"{name} must be finite and {least} zero in every row: leave out the others.")
    return np.broadcast_to(found, rows)


def check_sparse_memory(x: AllInputs, orbit: Orbit, num_inducing: int | None, settings: TrainerSettings) -> None:
    """Refuse inputs whose step of sparse inference would not fit into memory: the system would end the process."""
    points = math.prod(inducing_size(num_inducing, settings.inducing_samples, len(x), orbit, x.device))
    samples = settings.num_samples or (orbit.size if isinstance(orbit, FiniteOrbit) else 1)
    # In single precision, five times: as drawn, as places to interpolate, as the kernel sees them, and their gradients.
    needed = 5 * 4.0 * math.prod(x.shape[1:]) * (min(settings.batch_size, len(x)) * samples + points)
    free = free_memory(x.device)
    if needed > free:
        raise ValueError(
            f"inputs of shape {tuple(x.shape[1:])} are too large: training would take about {needed / 1e9:,.0f} GB of "
            f"memory, and {free / 1e9:,.0f} GB are free. Make them smaller, as images with --resize 64x64."
        )


def usable_device(name: Any) -> torch.device:
    """The device of this name, if float64 arrays can live on it."""
    try:
        device = torch.device(name)
        torch.zeros((), dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used: {reason}") from error
    return device


def check_same_everywhere(estimator: BaseEstimator, row: tuple[int, ...]) -> None:
    """Processes that share the data must agree on the settings and on the shape of a row, and each must bring some."""
    said = processes.all_gather((repr(estimator), row))
    for number, (settings, shape) in enumerate(said):
        if settings != said[0][0]:
            raise ValueError(f"process {number} fits with other settings than process 0: all must have the same.")
        if shape != said[0][1]:
            raise ValueError(f"process {number} has inputs of shape {shape}, but process 0 of shape {said[0][1]}.")


def image_shape(value: Any) -> tuple[int, ...] | None:
    """(H, W) or (C, H, W) as a tuple of positive whole numbers."""
    if value is None:
        return None
    numbers = tuple(value) if isinstance(value, tuple | list) else ()
    if len(numbers) not in (2, 3) or not all(isinstance(n, Integral) and int(n) > 0 for n in numbers):
        raise ValueError(f"image_shape must be (H, W) or (C, H, W) in positive whole numbers, got {value!r}.")
    return tuple(int(n) for n in numbers)


def warn_of_scales(x: Float[Tensor, "rows *features"]) -> None:
    """Warn where columns of a table have such different units that one lengthscale for all sees only the largest."""
    if x.ndim > 2:
        return
    spread, centre = torch.std_mean(x.double(), 0, correction=0)
    spread = spread[spread > 1e-10 * centre.abs()]  # without those that do not vary
    if len(spread) > 1 and float(spread.max() / spread.min()) > 1000:
        warnings.warn(
            f"the columns of X spread by {float(spread.min()):.2g} to {float(spread.max()):.2g}, and one lengthscale "
            "for all sees only the widest: standardise them with sklearn.preprocessing.StandardScaler, or take a "
            "lengthscale for each, ard=True."
        )


def check_map(feature_map: nn.Module, x: Float[Tensor, "rows *features"]) -> None:
    """Refuse a feature map that does not take these inputs to vectors, each on its own."""
    name, shape = type(feature_map).__name__, tuple(x.shape[1:])
    try:
        mapped, first = feature_map(x.double()), feature_map(x[:1].double())
    except Exception as error:
        where = f"on inputs of shape {shape}"
        raise ValueError(f"the feature map {name} cannot be evaluated {where}: {_reason(error)}") from error
    if not isinstance(mapped, Tensor) or mapped.ndim < 2 or len(mapped) != len(x) or not mapped[0].numel():
        got = tuple(mapped.shape) if isinstance(mapped, Tensor) else type(mapped).__name__
        raise ValueError(f"the feature map {name} must take {len(x)} inputs to vectors ({len(x)}, D), but gives {got}.")
    if not mapped.isfinite().all():
        raise ValueError(f"the feature map {name} takes the first inputs to numbers that are not finite.")
    if not torch.allclose(first, mapped[:1], rtol=1e-4, atol=1e-4 * float(mapped.abs().max())):
        raise ValueError(
            f"the feature map {name} takes an input alone to other numbers than in a batch, or at another time: "
            "put it into evaluation mode, with .eval()."
        )


@torch.no_grad()
def check_kernel(kernel: Kernel, x: Float[Tensor, "rows dim"]) -> None:
    """Refuse a kernel that cannot be evaluated on these rows, or that has several outputs."""
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
            raise ValueError(f"a kernel has lengthscales for {part.ard_num_dims} features, but the inputs have {dim}.")
    if not isinstance(part, FeatureMapKernel):  # behind it are the features of its map
        for inner in part.children():
            _check_lengthscales(inner, dim)


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
