"""``orbitgp.compare``: a model for each orbit, ranked by evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch

from orbitgp.comparison.parallel import Estimator, Job, Trained, Watch, column_names, train_all
from orbitgp.comparison.refine import train_and_refine
from orbitgp.comparison.result import Comparison
from orbitgp.comparison.symmetry import likely_generators
from orbitgp.datasets.base import Task, task_of
from orbitgp.datasets.columns import columns_of, table_of
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.estimators.data import channels_first, check_images
from orbitgp.estimators.validation import ard_for
from orbitgp.orbits import Identity, Orbit
from orbitgp.orbits.parse import make_orbit
from orbitgp.training.progress import Progress, is_watched
from orbitgp.training.run import Engine

Orbits = Sequence[str | Orbit | None] | Mapping[str, str | Orbit | None]


def compare(
    X: Any,
    y: Any,
    orbits: Orbits | None = None,
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

    A model is trained for each orbit with the same settings, and its evidence is measured on fresh draws. Each evidence
    lies in an interval. While the intervals of the best orbits overlap, these are trained again with more inducing
    points or steps, or exactly, until one orbit is certain or ``refine_seconds`` are over. The result ranks the orbits
    and says how sure that is: ``print`` it, ``plot()`` it, or take ``to_pandas()``.

        >>> x = np.random.default_rng(0).normal(size=(30, 2))
        >>> compare(x, x.sum(1), ["none", "swap(0, 1)"]).best
        'swap(0,1)'

    Args:
        X, y: as for the estimators.
        orbits: orbits as objects or in words (``"rotation(30)"``, ``"affine*deformation"``), None for no invariance; or
            a dictionary of these by name. By default none, rotations and affine maps of images, and of a table up to
            four likely exchanges of columns and changes of sign.
        task: ``classification`` or ``regression``; ``auto`` looks at y.
        refine_seconds: how long to go on where intervals overlap. By default three times what the first models took,
            and at least 20 seconds; 0 trains each orbit once.
        n_jobs: how many models to train at a time, as for scikit-learn: 1 trains them in this process, more take worker
            processes, -1 one for each core. None takes what ``joblib.parallel_config`` says, or else 1; so
            ``with joblib.parallel_config("dask"):`` trains them on a cluster.
        random_state: the first seed; models that are trained again take the next ones.
        watch: called with a job and each record of its history, and with None when it is done. Records of a worker
            arrive when its model is done.
        keep: a folder for every model that is done. The same call goes on with them after it was stopped.
        settings: of the estimator: ``num_inducing``, ``max_steps``, ``likelihood``, …; ``verbose`` is for one bar.
    """
    verbose, settings["verbose"] = settings.get("verbose"), False
    columns = column_names(X)
    X, y = channels_first(X), np.asarray(y)
    shape = tuple(settings.get("image_shape") or ([len(columns)] if len(columns) else X.shape[1:]))
    if orbits is None:
        orbits = ["none", *(["rotation", "affine"] if len(shape) > 1 else _of_table(X, columns))]
    named = named_orbits(orbits, shape, columns)
    if X.ndim > 2:
        check_images(X, *deepcopy([*named.values()]))  # each fit gives its own copy a border
    if task not in ("auto", "classification", "regression"):
        raise ValueError(f"task must be auto, classification or regression, got {task!r}.")
    found = task_of(y) if task == "auto" else task
    kind: type[Estimator] = InvariantGPClassifier if found == "classification" else InvariantGPRegressor
    # Expensive models first, so that workers end at about the same time.
    costly = sorted(named, key=lambda name: isinstance(named[name], Identity))
    jobs = {name: Job(name, named[name], random_state, kind, settings) for name in costly}
    plain = next((job for job in jobs.values() if isinstance(job.orbit, Identity)), None)
    done: list[Trained] = []
    asked = {name: settings.get(name) for name in ("ard", "kernel", "feature_map")}
    shown = watch is None and (is_watched() if verbose is None else bool(verbose))
    planned = [job.kind(job.orbit, **settings).plan(X, y).seconds or 0.0 for job in jobs.values() if shown]
    units = {name: quantity.unit for orbit in named.values() for name, quantity in orbit.describe().quantities.items()}
    with Progress(planned, units, lines=shown, show=shown and verbose) as bar:
        train = partial(train_all, X=X, y=y, n_jobs=n_jobs, watch=OneBar(bar, [*jobs]) if shown else watch, keep=keep)
        if asked["ard"] == "auto" and ard_for(asked, torch.empty(0, *shape)):  # that without an orbit decides for all
            (decides,) = train([plain or Job("none", Identity(), random_state, kind, settings)])
            jobs = {name: replace(job, settings={**settings, "ard": decides.model.ard_}) for name, job in jobs.items()}
            done = [replace(decides, job=jobs.pop(plain.name))] if plain else []
        standings, models = train_and_refine(list(jobs.values()), len(X), train, refine_seconds, n_jobs, done)
    return Comparison(standings, models, None if plain is None else plain.name)


class OneBar:
    """Tells the progress of all models of a comparison, in one bar: an argument of :func:`compare`.

    ``names`` are the orbits in the order of the seconds of the bar. Workers may end in another.
    """

    def __init__(self, bar: Progress, names: Sequence[str]) -> None:
        self.bar, self.names = bar, list(names)

    def begin(self, job: Job, engine: Engine) -> None:
        """A job begins, in this process."""
        self.bar.begin(engine, _in_words(job))

    def __call__(self, job: Job, record: Mapping[str, Any] | None) -> None:
        """A record of a job, or None when it is done. Records of a worker come all at once when it is."""
        if record is None:
            if job.name in self.names[(done := self.bar.done) :]:
                place = self.names.index(job.name, done)
                self.names.insert(done, self.names.pop(place))
                self.bar.seconds.insert(done, self.bar.seconds.pop(place))
            self.bar.end(_in_words(job))
        else:
            self.bar.record(dict(record))


def _of_table(X: Any, columns: Sequence[str]) -> list[str]:
    frame = table_of(X)
    inputs = X if frame is None else np.column_stack([*columns_of(frame).inputs(frame, []).values()])
    if found := likely_generators(np.asarray(inputs), columns):
        return found
    raise ValueError("no two columns look alike, and none is symmetric about zero: name orbits to compare.")


def _in_words(job: Job) -> str:
    return job.name + (f" ({job.purpose}, seed {job.seed})" if job.purpose else f", seed {job.seed}")


def named_orbits(orbits: Orbits, shape: tuple[int, ...], columns: Sequence[str] = ()) -> dict[str, Orbit]:
    """Orbits by name, in their order. Orbits given as texts may name columns."""
    if isinstance(orbits, str | Orbit):
        raise TypeError("orbits must be a list of orbits, or a dictionary of them by name.")
    pairs = list(orbits.items()) if isinstance(orbits, Mapping) else [(orbit_name(value), value) for value in orbits]
    named = {str(name): make_orbit(value, shape, columns) for name, value in pairs}
    if len(named) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"two orbits are called {twice!r}: give each a name of its own, in a dictionary.")
    if len(named) < 2:
        raise ValueError(f"a comparison takes at least two orbits, got {len(named)}.")
    return named


def orbit_name(value: str | Orbit | None) -> str:
    """What a comparison calls an orbit; names of columns keep their blanks."""
    if isinstance(value, str):
        return re.sub(r"\s*([()*,=])\s*", r"\1", value.strip())
    return value.describe().title if isinstance(value, Orbit) else str(value).lower()  # other things are refused later
