"""``orbitgp.compare``: a model for each orbit, ranked by evidence; ``orbitgp.profile``: for each value of a quantity of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch

from orbitgp.comparison.parallel import Estimator, Job, Trained, Watch, column_names, train_all
from orbitgp.comparison.refine import train_and_refine
from orbitgp.comparison.result import Comparison, Profile
from orbitgp.comparison.verdict import Standing
from orbitgp.datasets.base import Task, task_of
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.estimators.data import channels_first, check_images
from orbitgp.estimators.validation import ard_for
from orbitgp.orbits import Identity, Orbit
from orbitgp.orbits.parse import make_orbit, quantity_names, with_fixed

DEGREES = (0.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 135.0, 180.0)
MULTIPLES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # of a quantity's initial value, where there is no natural grid

Orbits = Sequence[str | Orbit | None] | Mapping[str, str | Orbit | None]


def compare(
    X: Any,
    y: Any,
    orbits: Orbits = ("none", "rotation", "affine"),
    *,
    task: Task | Literal["auto"] = "auto",
    refine_seconds: float | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    watch: Watch | None = None,
    keep: str | PathLike[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Which of these invariances do the data support?

    A model is trained for each orbit with the same settings, and its evidence is measured on fresh draws. Each evidence lies in
    an interval. While the intervals of the best orbits overlap, these are trained again with more inducing points or steps, or
    exactly, until one orbit is certain or ``refine_seconds`` are over. The result ranks the orbits and says how sure that is:
    ``print`` it, ``plot()`` it, or take ``to_pandas()``.

    Args:
        X, y: as for the estimators.
        orbits: orbits as objects or in words (``"rotation(30)"``, ``"affine*deformation"``), None for no invariance; or a
            dictionary of these by name.
        task: ``classification`` or ``regression``; ``auto`` looks at y.
        refine_seconds: how long to go on where intervals overlap. By default three times what the first models took, and at
            least 20 seconds; 0 trains each orbit once.
        n_jobs: how many models to train at a time, as for scikit-learn: 1 trains them in this process, more take worker
            processes, -1 one for each core. None takes what ``joblib.parallel_config`` says, or else 1; so
            ``with joblib.parallel_config("dask"):`` trains them on a cluster.
        random_state: the first seed; models that are trained again take the next ones.
        watch: called with a job and each record of its history, and with None when it is done. Records of a worker arrive
            when its model is done.
        keep: a folder for every model that is done. The same call goes on with them after it was stopped.
        settings: arguments of the estimator: ``num_inducing``, ``max_steps``, ``likelihood``, …
    """
    columns = column_names(X)
    X, y = channels_first(X), np.asarray(y)
    shape = _features(X, columns, settings)
    named = named_orbits(orbits, shape, columns)
    if X.ndim > 2:
        check_images(X, *named.values())
    # Expensive models first, so that workers end at about the same time.
    costly = {name: named[name] for name in sorted(named, key=lambda name: isinstance(named[name], Identity))}
    standings, models = _train(X, y, costly, shape, task, refine_seconds, n_jobs, random_state, watch, keep, **settings)
    plain = next((name for name, orbit in named.items() if isinstance(orbit, Identity)), None)
    return Comparison(standings, models, plain)


def profile(
    X: Any,
    y: Any,
    orbit: str,
    quantity: str,
    values: Sequence[float] | None = None,
    *,
    task: Task | Literal["auto"] = "auto",
    columns: Sequence[str] | None = None,
    **settings: Any,
) -> Profile:
    """The evidence with one quantity of an orbit, as ``describe()`` names it, held at each of these values.

    A range is held at ± its value, a factor f at 1/f to f. ``columns`` are those that the orbit may name, where X is no data
    frame. Other arguments are those of :func:`orbitgp.compare`.
    """
    if not isinstance(orbit, str):
        raise TypeError(f"a profile takes an orbit by name, as in 'rotation' or 'scale*noise', got {type(orbit).__name__}.")
    columns = column_names(X) if columns is None else columns
    X, y = channels_first(X), np.asarray(y)
    shape = _features(X, columns, settings)
    if quantity not in quantity_names(orbit, columns):
        with_fixed(orbit, quantity, 1.0, shape, columns)  # raises an error that lists the quantities
    chosen = grid(orbit, quantity, shape, columns) if values is None else list(dict.fromkeys(float(value) for value in values))
    if not chosen:
        raise ValueError("a profile needs at least one value.")
    unit = make_orbit(orbit, shape, columns).describe().quantities[quantity].unit
    held = {f"{quantity} = {value:.12g}": with_fixed(orbit, quantity, value, shape, columns) for value in chosen}
    standings, _ = _train(X, y, held, shape, task, **settings)
    highs = [standing.high if isfinite(standing.high) else None for standing in standings]
    return Profile(orbit, quantity, unit, chosen, [s.value for s in standings], [s.low for s in standings], highs)


def grid(orbit: str, quantity: str, shape: tuple[int, ...], columns: Sequence[str] = ()) -> list[float]:
    """Default values: fixed angles for degrees, multiples of the initial value for the rest."""
    found = make_orbit(orbit, shape, columns).describe().quantities[quantity]
    if found.unit == "°":
        return list(DEGREES)
    start = max(abs(end) for end in found.value) if isinstance(found.value, tuple) else found.value
    return [start**multiple if found.unit == "×" else start * multiple for multiple in MULTIPLES]


def _train(
    X: Any,
    y: np.ndarray,
    orbits: Mapping[str, Orbit],
    shape: tuple[int, ...],
    task: Task | Literal["auto"],
    refine_seconds: float | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    watch: Watch | None = None,
    keep: str | PathLike[str] | None = None,
    **settings: Any,
) -> tuple[list[Standing], dict[str, list[Trained]]]:
    """A model of each orbit, a classifier or a regressor by the task or by the type of y, and more where these decide.

    All have the same settings: where ``ard`` is ``auto`` and inputs have columns, the model without an orbit decides.
    """
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be auto, classification or regression, got {task!r}.")
    found = task_of(y) if task == "auto" else task
    kind: type[Estimator] = InvariantGPClassifier if found == "classification" else InvariantGPRegressor
    train = partial(train_all, X=X, y=y, n_jobs=n_jobs, watch=watch, keep=keep)
    jobs = {name: Job(name, orbit, random_state, kind, settings) for name, orbit in orbits.items()}
    done: list[Trained] = []
    asked = {name: settings.get(name) for name in ("ard", "kernel", "feature_map")}
    if asked["ard"] == "auto" and ard_for(asked, torch.empty(0, *shape)):
        plain = next((job for job in jobs.values() if isinstance(job.orbit, Identity)), None)
        (decides,) = train([plain or Job("none", Identity(), random_state, kind, settings)])
        jobs = {name: replace(job, settings={**settings, "ard": decides.model.ard_}) for name, job in jobs.items()}
        done = [replace(decides, job=jobs.pop(plain.name))] if plain else []
    return train_and_refine(list(jobs.values()), len(X), train, refine_seconds, n_jobs, done)


def named_orbits(orbits: Orbits, shape: tuple[int, ...], columns: Sequence[str] = ()) -> dict[str, Orbit]:
    """Orbits by name, in their order. Orbits given as texts may name columns."""
    if isinstance(orbits, str | Orbit):
        raise TypeError("orbits must be a list of orbits, or a dictionary of them by name.")
    pairs = list(orbits.items()) if isinstance(orbits, Mapping) else [(_name(value), value) for value in orbits]
    named = {str(name): make_orbit(value, shape, columns) for name, value in pairs}
    if len(named) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"two orbits are called {twice!r}: give each a name of its own, in a dictionary.")
    if len(named) < 2:
        raise ValueError(f"a comparison takes at least two orbits, got {len(named)}.")
    return named


def _name(value: str | Orbit | None) -> str:
    if isinstance(value, str):
        return value.replace(" ", "")
    return value.describe().title if isinstance(value, Orbit) else str(value).lower()  # what is no orbit is refused later


def _features(X: Any, columns: Sequence[str], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one input, as the orbit sees it."""
    return tuple(settings.get("image_shape") or ([len(columns)] if len(columns) else X.shape[1:]))
