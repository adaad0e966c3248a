"""The arguments of an estimator, checked: one clear sentence for each value that makes no sense.

A constructor of scikit-learn takes anything and ``fit`` complains, so these checks run first in ``fit``. An argument of None
means the library's default: that of :class:`orbitgp.training.options.TrainerSettings`, where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any, get_args

import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from torch import nn

from orbitgp.estimators.defaults import InferenceName
from orbitgp.inference import processes
from orbitgp.inference.prior_mean import MeanName
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.training.checks import one_of, positive_number, whole_number
from orbitgp.training.options import TrainerSettings, TrainingOptions

NUM_INDUCING = 256
PREDICT_SAMPLES = 128  # of an infinite orbit, at prediction
PREDICT_ELEMENTS = 1024  # a finite orbit of up to so many elements is enumerated at prediction

_COUNTS = ("num_inducing", "num_samples", "batch_size", "max_steps")
_OBJECTS = (
    ("orbit", Orbit, "orbitgp.orbits.Orbit"),
    ("kernel", Kernel, "gpytorch.kernels.Kernel"),
    ("feature_map", nn.Module, "torch.nn.Module"),
    ("training", TrainingOptions, "orbitgp.TrainingOptions"),
)
_FOR_EXACT_TOO = {"dtype", "exact_seconds", "num_predict_samples", "starts"}
_OF_TRAINER = ("num_samples", "max_steps", "max_seconds", "batch_size")


def check_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with plain Python numbers, or TypeError or ValueError in one sentence."""
    checked = dict(arguments)
    for name in _COUNTS:
        if arguments[name] is not None:
            checked[name] = whole_number(name, arguments[name])
    if arguments["max_seconds"] is not None:
        checked["max_seconds"] = positive_number("max_seconds", arguments["max_seconds"])
    one_of("mean", arguments["mean"], get_args(MeanName))
    one_of("inference", arguments["inference"], get_args(InferenceName))
    for name, kind, described in _OBJECTS:
        _check_object(name, arguments[name], kind, described)
    return checked


def asks_for_sparse(arguments: Mapping[str, Any]) -> bool:
    """Whether an argument or option was given that only sparse inference has."""
    changed = training_options(arguments["training"]).changed()
    return arguments["num_inducing"] is not None or arguments["batch_size"] is not None or bool(changed - _FOR_EXACT_TOO)


def training_options(training: Any) -> TrainingOptions:
    """The options that the user gave, or the library's."""
    _check_object("training", training, TrainingOptions, "orbitgp.TrainingOptions")
    return TrainingOptions() if training is None else training


def _check_object(name: str, value: Any, kind: type, described: str) -> None:
    if isinstance(value, type):
        raise TypeError(f"{name} must be an instance, got the class {value.__name__}: write {value.__name__}(...).")
    # Settings of a trainer are options too, but they name a budget and a seed, which here are arguments of their own.
    if value is not None and (not isinstance(value, kind) or isinstance(value, TrainerSettings)):
        raise TypeError(f"{name} must be a {described} or None, got {type(value).__name__}.")


def trainer_settings(arguments: Mapping[str, Any], orbit: Orbit, seed: int) -> TrainerSettings:
    """The options and the arguments of an estimator in one object; ``num_samples=None`` where a finite orbit is enumerated."""
    given = {name: arguments[name] for name in _OF_TRAINER if arguments[name] is not None}
    settings = TrainerSettings(**training_options(arguments["training"]).get_params(), **given, seed=seed)
    if not isinstance(orbit, FiniteOrbit):
        return settings
    if settings.num_samples is not None and settings.num_samples >= orbit.size:
        return replace(settings, num_samples=None)
    if settings.num_samples == 1:
        raise ValueError(f"num_samples must be at least 2 for an orbit of {orbit.size} elements, got 1.")
    return settings


def inducing_count(num_inducing: int | None, rows: int, orbit: Orbit) -> int:
    """How many inducing points: no more than there are elements of finite orbits; by default at most eight for each datum."""
    if isinstance(orbit, FiniteOrbit):
        return min(num_inducing or NUM_INDUCING, rows * orbit.size)
    # It takes several points to represent an average over an orbit; too few hide how far the orbit should reach.
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


def check_same_everywhere(estimator: BaseEstimator, row: tuple[int, ...]) -> None:
    """Processes that share the data must agree on the settings and on the shape of a row, and each must bring some."""
    said = processes.everyones((repr(estimator), row))
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
