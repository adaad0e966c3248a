"""Small problems for which rules of the learner were once made: each is one fit with nothing but defaults.

Tags say which rules can matter to a case:

- ``reach``: the orbit has a reach to learn, and ``drawn``: it has draws;
- ``several``: it has more than one reach, ``shape``: it has a parameter that is no reach, ``simpler``: it contains
  simpler orbits, ``turn``: it has a widest reach;
- ``sketch``: rows are enough for a rung of fewer, and ``middle``: for one more; ``enumerated``: for a sketch, but
  nothing is drawn;
- ``map``: a feature map has constants to learn; ``bound``: the bound of inducing points is climbed at last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from gpytorch.kernels import MaternKernel, ScaleKernel
from sklearn.datasets import load_diabetes, load_iris

from benchmarks.answers import data_of
from experiments import battery
from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.datasets import digits, movements, rotate, spectra
from orbitgp.kernels import SmoothDerivative

Problem = tuple[np.ndarray, np.ndarray]
SHIFT, WARP = "timeshift(interval=0.02, unit='s')", "timewarp(interval=0.02, unit='s')"


@dataclass(frozen=True)
class Case:
    """One fit. ``seconds`` of one core are what it takes, about: the longest begin first."""

    draw: Callable[[], Problem]
    orbit: str
    tags: str
    seconds: float
    options: dict[str, Any] = field(default_factory=dict)

    def has(self, needed: str) -> bool:
        """Whether it has all of these tags."""
        return set(needed.split()) <= set(self.tags.split())

    def fit(self) -> Any:
        """The fitted estimator."""
        x, y = self.draw()
        kind = InvariantGPClassifier if np.issubdtype(y.dtype, np.integer) else InvariantGPRegressor
        return kind(self.orbit, random_state=0, **self.options).fit(x, y)


def images(rows: int, order: int = 0, degrees: float = 0.0) -> Problem:
    """The first embedded digits, as ``experiments.stability`` has them: in another order, or turned."""
    data = digits()
    x, y = data.x_train[:rows], data.y_train[:rows]
    return reordered((rotate(x, degrees)[0], y) if degrees else (x, y), order)


def sensors(order: int = 0) -> Problem:
    """The sixty movements of ``experiments.stability``."""
    data = movements()
    return reordered((data.x_train, data.y_train), order)


def reordered(problem: Problem, order: int) -> Problem:
    """The same rows in another order, if ``order`` is not zero."""
    x, y = problem
    chosen = np.random.default_rng(order).permutation(len(x)) if order else np.arange(len(x))
    return x[chosen], y[chosen]


def generated(case: str) -> Problem:
    """What ``benchmarks.answers`` learns from."""
    return data_of(case)[:2]


def absorption(rows: int) -> Problem:
    """Spectra, interpolated linearly where a shift moves them: their evidence has kinks."""
    data = spectra(rows)
    return data.x_train, data.y_train


def fast_wave() -> Problem:
    """Signals whose target is a fast wave of their height: a short lengthscale explains it, or noise does."""
    rng = np.random.default_rng(0)
    height = rng.uniform(size=40)
    x = height[:, None] * np.exp(-0.5 * ((np.arange(24) - 12) / 2) ** 2)
    return x[:, None].astype(np.float32), np.sin(12 * height) + 0.1 * rng.normal(size=40)


def bumps_on_waves(rows: int = 40) -> Problem:
    """Signals of a wave that says nothing, and a bump that is narrow or wide; as in ``tests.training.test_starts``."""
    rng, time = np.random.default_rng(1), np.arange(60)
    y = rng.integers(0, 2, rows)
    wave = np.cos(2 * np.pi * (time / 40 + rng.uniform(0, 1, (rows, 1)))) * rng.uniform(1, 3, (rows, 1))
    bump = np.exp(-0.5 * ((time - rng.uniform(20, 40, (rows, 1))) / (3 + 3 * y[:, None])) ** 2)
    return wave + bump + 0.05 * rng.normal(size=(rows, 60)), y


def sine() -> Problem:
    """A sine whose inputs were measured with noise."""
    return battery.noisy_inputs(80, 0)


def exchanged() -> Problem:
    """A function of two inputs that may be exchanged."""
    return battery.symmetric(50, 0)


def bumps() -> Problem:
    """Bumps anywhere in a signal; the target is their width."""
    return battery.signals(60, 0)


_DRAWN = "reach drawn sketch"
_SEVERAL = f"{_DRAWN} several simpler"
_MAP = {"feature_map": SmoothDerivative(2, 0.7), "likelihood": "gaussian"}
CASES = {
    "digits 100 rotation": Case(partial(images, 100), "rotation", f"{_DRAWN} turn", 7),
    "digits 100 translation": Case(partial(images, 100), "translation", _SEVERAL, 10),
    "digits 100 scale": Case(partial(images, 100), "scale", _SEVERAL, 4),
    "digits 100 shear rows 2": Case(partial(images, 100, 2), "shear", _SEVERAL, 8),
    "digits 100 deformation": Case(partial(images, 100), "deformation", f"{_DRAWN} shape", 9),
    "digits 100 noise": Case(partial(images, 100), "noise", "reach enumerated", 1),
    "turned digits 100 rotation": Case(partial(images, 100, degrees=60.0), "rotation", f"{_DRAWN} turn", 6),
    "turned digits 100 affine": Case(partial(images, 100, degrees=60.0), "affine", f"{_SEVERAL} turn", 22),
    "digits 300 rotation": Case(partial(images, 300), "rotation", f"{_DRAWN} turn middle", 27),
    "digits 100 rotation, sparse": Case(
        partial(images, 100), "rotation", "bound", 12, {"inference": "sparse", "num_inducing": 32}
    ),
    "signals 100 timeshift": Case(partial(generated, "signals 100 timeshift"), "timeshift", _DRAWN, 7),
    "signals 40 timewarp": Case(partial(generated, "signals 40 timewarp"), "timewarp", "reach drawn shape", 5),
    "movements 60 timeshift": Case(sensors, SHIFT, "reach drawn", 7),
    "movements 60 timeshift rows 2": Case(partial(sensors, 2), SHIFT, "reach drawn", 6.5),
    "movements 60 timewarp": Case(sensors, WARP, "reach drawn shape", 16),
    "spectra 100 timeshift": Case(partial(absorption, 100), "timeshift", _DRAWN, 7.5),
    "fast wave 40 timeshift": Case(fast_wave, "timeshift", "reach drawn", 1.5),
    "bumps 60 translation": Case(bumps, "translation(0.5, None)", "reach drawn", 3.5),
    "bumps 60 scale*translation": Case(bumps, "scale(1.1)*translation(1, None)", "reach drawn several simpler", 6.5),
    "iris 100 noise, drawn": Case(
        partial(battery.table, 100, 0, load_iris), "noise", _DRAWN, 6.5, {"kernel": ScaleKernel(MaternKernel(1.5))}
    ),
    "diabetes 100 noise": Case(partial(battery.table, 100, 0, load_diabetes), "noise", "reach enumerated", 1),
    "sine 80 noise": Case(sine, "noise", "reach", 1),
    "exchanged 50 noise": Case(exchanged, "swap(0, 1)*noise", "reach drawn", 5),
    "diabetes 331": Case(partial(generated, "table 331"), "none", "enumerated middle", 0.5, {"ard": False}),
    "diabetes 331, ard": Case(partial(generated, "table 331"), "none", "enumerated middle", 0.6, {"ard": True}),
    "waves 40, feature map": Case(bumps_on_waves, "none", "map", 0.6, _MAP),
    "waves 24 timeshift, feature map": Case(partial(bumps_on_waves, 24), "timeshift", "reach drawn map", 6, _MAP),
}
