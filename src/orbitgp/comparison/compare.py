"""``orbitgp.compare``: a model for each orbit, under the same budget, ranked by evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orbitgp.comparison.keep import Kept
from orbitgp.comparison.parallel import Estimator, Job, Trained, Watch, train_all
from orbitgp.comparison.result import Comparison
from orbitgp.comparison.verdict import MORE, Evidences, remaining_gain
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.estimators.defaults import Task, task_of
from orbitgp.estimators.images import channels_first, check_images
from orbitgp.estimators.validation import inducing_count
from orbitgp.orbits import Identity, Orbit
from orbitgp.orbits.parse import make_orbit

Orbits = Sequence[str | Orbit | None] | Mapping[str, str | Orbit | None]


def compare(
    X: Any,
    y: Any,
    orbits: Orbits = ("none", "rotation", "affine"),
    *,
    task: Task | Literal["auto"] = "auto",
    seeds: int = 2,
    check_inducing: bool = True,
    n_jobs: int | None = None,
    random_state: int = 0,
    watch: Watch | None = None,
    keep: str | PathLike[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Which of these invariances do the data support?

    A model is trained for each orbit and each of ``seeds`` seeds with the same settings, and its evidence is measured on fresh
    draws. The result ranks the orbits and says how sure that is: ``print`` it, ``plot()`` it, or take ``to_pandas()``. Where
    inference is exact (``inference="auto"``, few data), one model for each orbit is enough.

    Args:
        X, y: as for the estimators.
        orbits: orbits as objects or in words (``"rotation(30)"``, ``"affine*deformation"``), None for no invariance; or a
            dictionary of these by name.
        task: ``classification`` or ``regression``; ``auto`` looks at y.
        seeds: how many times to train each orbit, from different seeds.
        check_inducing: whether to train each orbit once more with twice the inducing points, to check that the order holds.
        n_jobs: how many models to train at a time, as for scikit-learn: 1 trains them in this process, more take worker
            processes, -1 one for each core. None takes what ``joblib.parallel_config`` says, or else 1; so
            ``with joblib.parallel_config("dask"):`` trains them on a cluster.
        random_state: the first seed.
        watch: called with a job and each record of its history, and with None when it is done. Records of a worker arrive
            when its model is done.
        keep: a folder for every model that is done. The same call goes on with them after it was stopped.
        settings: arguments of the estimator: ``num_inducing``, ``max_steps``, ``likelihood``, …
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}.")
    X, y = channels_first(X), np.asarray(y)
    named = named_orbits(orbits, features(X, settings))
    kind = estimator_for(y, task)
    if X.ndim > 2:
        check_images(X, *named.values())
    # Expensive models first, so that workers end at about the same time.
    costly = sorted(named, key=lambda name: isinstance(named[name], Identity))
    first = [Job(name, named[name], random_state, kind, settings) for name in costly]
    keeper = None if keep is None else Kept(Path(keep), X, y)
    results = train_all(first, X, y, n_jobs, watch, keeper)
    # An exact model is the same from every seed, and has no inducing points: only sparse ones are trained again.
    sparse = [trained.job for trained in results if trained.model.inference_ == "sparse"]
    again = [replace(job, seed=random_state + i) for i in range(1, seeds) for job in sparse]
    again += [_with_more(job, len(X)) for job in sparse] if check_inducing else []
    return _table(named, results + train_all(again, X, y, n_jobs, watch, keeper), seeds)


def named_orbits(orbits: Orbits, shape: tuple[int, ...]) -> dict[str, Orbit]:
    """Orbits by name, in their order."""
    if isinstance(orbits, str | Orbit):
        raise TypeError("orbits must be a list of orbits, or a dictionary of them by name.")
    pairs = list(orbits.items()) if isinstance(orbits, Mapping) else [(_name(value), value) for value in orbits]
    named = {str(name): _orbit(value, shape) for name, value in pairs}
    if len(named) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"two orbits are called {twice!r}: give each a name of its own, in a dictionary.")
    if len(named) < 2:
        raise ValueError(f"a comparison takes at least two orbits, got {len(named)}.")
    return named


def _name(value: str | Orbit | None) -> str:
    if value is None:
        return "none"
    return value.replace(" ", "") if isinstance(value, str) else value.describe().title


def _orbit(value: str | Orbit | None, shape: tuple[int, ...]) -> Orbit:
    if value is None:
        return Identity()
    if isinstance(value, str):
        return make_orbit(value, shape)
    if not isinstance(value, Orbit):
        raise TypeError(f"an orbit is an orbitgp.orbits.Orbit, its name or None, got {type(value).__name__}.")
    return value


def features(X: np.ndarray, settings: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one input, as the orbit sees it."""
    return tuple(settings.get("image_shape") or X.shape[1:])


def estimator_for(y: np.ndarray, task: Task | Literal["auto"]) -> type[Estimator]:
    """Classifier or regressor, by the task or by the type of y."""
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be auto, classification or regression, got {task!r}.")
    found = task_of(y) if task == "auto" else task
    return InvariantGPClassifier if found == "classification" else InvariantGPRegressor


def _remaining(row: list[Trained]) -> float:
    """What training might still gain: nothing, or there is no telling, where the evidence was climbed exactly."""
    if row[0].model.inference_ == "exact":
        return 0.0 if row[0].model.converged_ else inf
    return float(np.median([remaining_gain(r.model.history_) for r in row]))


def _with_more(job: Job, rows: int) -> Job:
    count = MORE * inducing_count(job.settings.get("num_inducing"), rows, job.orbit)
    return Job(job.name, job.orbit, job.seed, job.kind, {**job.settings, "num_inducing": count}, "more inducing points")


def _table(named: Mapping[str, Orbit], results: list[Trained], seeds: int) -> Comparison:
    main = [[r for r in results if r.job.name == name and not r.job.purpose] for name in named]
    settled = np.array([row[0].model.inference_ == "exact" for row in main])
    columns = 1 if settled.all() else seeds
    more = {r.job.name: r.evidence for r in results if r.job.purpose}
    evidences = Evidences(
        names=list(named),
        values=np.array([[r.evidence for r in row] * (columns // len(row)) for row in main]),
        stderrs=np.array([[r.stderr for r in row] * (columns // len(row)) for row in main]),
        remaining=np.array([_remaining(row) for row in main]),
        more=np.array([more.get(row[0].job.name, row[0].evidence) for row in main]) if more else None,
        settled=settled,
        highs=np.array([max(r.model.evidence_.interval[1] for r in row) for row in main]),
    )
    plain = next((name for name, orbit in named.items() if isinstance(orbit, Identity)), None)
    return Comparison(evidences, main, plain)
