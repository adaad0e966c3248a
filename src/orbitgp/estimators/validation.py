"""What the constructor was given, checked: one clear sentence for each thing that cannot be.

scikit-learn's constructors take anything and ``fit`` complains, so these checks run first in ``fit``. An argument of None means
the library's default; the defaults of training are those of :class:`orbitgp.training.options.Options`, and stand nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from math import isfinite
from numbers import Integral, Real
from typing import Any, get_args

import torch
from gpytorch.kernels import Kernel
from torch import nn

from orbitgp.inference.prior_mean import MeanName
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.sampling import POLICIES
from orbitgp.training.options import OptimizerName, Options

NUM_INDUCING = 256
PREDICT_SAMPLES = 128  # of an infinite orbit, at prediction
PREDICT_ELEMENTS = 1024  # a finite orbit of up to so many elements is enumerated at prediction

_COUNTS = (
    "num_inducing",
    "inducing_samples",
    "num_samples",
    "num_groups",
    "num_predict_samples",
    "batch_size",
    "max_steps",
)
_OBJECTS = (
    ("orbit", Orbit, "orbitgp.orbits.Orbit"),
    ("kernel", Kernel, "gpytorch.kernels.Kernel"),
    ("feature_map", nn.Module, "torch.nn.Module"),
)
_TRAINING = ("optimizer", "max_steps", "max_seconds", "batch_size", "num_samples", "num_groups", "draws")


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same with plain Python numbers (grid searches hand over NumPy's), or TypeError or ValueError in one sentence."""
    checked = dict(settings)
    for name in _COUNTS:
        value = settings[name]
        if value is None:
            continue
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise TypeError(f"{name} must be a whole number, got {value!r}.")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
        checked[name] = int(value)
    for name in ("max_seconds", "jitter"):
        value = settings[name]
        if value is None and name == "max_seconds":
            continue
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, got {value!r}.")
        if not (isfinite(value) and float(value) > 0):
            raise ValueError(f"{name} must be positive and finite, got {value}.")
        checked[name] = float(value)
    _check_name("dtype", settings["dtype"], ("auto", "float32", "float64"))
    _check_name("mean", settings["mean"], get_args(MeanName))
    for name, known in (("draws", POLICIES), ("optimizer", get_args(OptimizerName))):
        if settings[name] is not None:
            _check_name(name, settings[name], known)
    _check_options(settings["options"])
    for name, kind, example in _OBJECTS:
        value = settings[name]
        if isinstance(value, type):
            raise TypeError(f"{name} must be an instance, got the class {value.__name__}: write {value.__name__}(...).")
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {example} or None, got {type(value).__name__}.")
    return checked


def _check_name(name: str, value: Any, known: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")


def _check_options(options: Any) -> None:
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a mapping from names of orbitgp.training.options.Options to values, got {options!r}.")
    known = {field.name for field in fields(Options)} - {*_TRAINING, "seed"}
    for name in options:
        if name in _TRAINING:
            raise ValueError(f"{name} is an argument of its own: pass {name}=..., not options={{{name!r}: ...}}.")
        if name not in known:
            raise ValueError(f"training has no option {name!r}: it has {', '.join(sorted(known))}.")


def training_options(settings: Mapping[str, Any], orbit: Orbit, seed: int) -> Options:
    """The library's options with what the user set; ``num_samples=None`` where a finite orbit is enumerated."""
    given = {name: settings[name] for name in _TRAINING if settings[name] is not None}
    options = replace(Options(), **{**given, **(settings["options"] or {})}, seed=seed)
    if not isinstance(orbit, FiniteOrbit):
        return options
    if options.num_samples is not None and options.num_samples >= orbit.size:
        return replace(options, num_samples=None)
    if options.num_samples == 1:
        raise ValueError(f"num_samples must be at least 2 for an orbit of {orbit.size} elements, got 1.")
    return options


def inducing_count(num_inducing: int | None, rows: int, orbit: Orbit) -> int:
    """How many inducing points: no more than a finite orbit has elements; by default no crowd around few data."""
    if isinstance(orbit, FiniteOrbit):
        return min(num_inducing or NUM_INDUCING, rows * orbit.size)
    # An average over an orbit takes several points to tell; too few hide how far the orbit should reach.
    return num_inducing or min(NUM_INDUCING, 8 * rows)


def predict_samples(orbit: Orbit, num_predict_samples: int | None) -> int | None:
    """How many elements of the orbit to average at prediction; None stands for all."""
    if isinstance(orbit, FiniteOrbit) and orbit.size <= (num_predict_samples or PREDICT_ELEMENTS):
        return None
    return num_predict_samples or PREDICT_SAMPLES


def usable_device(name: Any) -> torch.device:
    """The device of this name, if float64 arrays can live on it."""
    try:
        device = torch.device(name)
        torch.zeros((), dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used: {reason}") from error
    return device


def image_shape(value: Any) -> tuple[int, ...] | None:
    """(H, W) or (C, H, W) as a tuple of positive whole numbers."""
    if value is None:
        return None
    numbers = tuple(value) if isinstance(value, tuple | list) else ()
    if len(numbers) not in (2, 3) or not all(isinstance(n, Integral) and int(n) > 0 for n in numbers):
        raise ValueError(f"image_shape must be (H, W) or (C, H, W) in positive whole numbers, got {value!r}.")
    return tuple(int(n) for n in numbers)
