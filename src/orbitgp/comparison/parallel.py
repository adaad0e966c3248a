"""Training many models: one after the other here, or several at a time in worker processes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Orbit
from orbitgp.training.diagnostics import Record
from orbitgp.workers import as_done, runs_here

Estimator = InvariantGPClassifier | InvariantGPRegressor
Watch = Callable[["Job", Record | None], None]
"""Called with a job and a record of its history, or None when the job is done."""


@dataclass(frozen=True)
class Job:
    """One model to train: an orbit by its name, a seed, and the settings of the estimator."""

    name: str
    orbit: Orbit
    seed: int
    kind: type[Estimator]
    settings: dict[str, Any] = field(default_factory=dict)
    purpose: str = ""  # empty for the comparison itself, else the check that it serves


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, its evidence, and the seconds that it took."""

    job: Job
    evidence: float
    stderr: float
    seconds: float
    model: Estimator


def train(job: Job, X: Any, y: Any, watch: Watch | None = None) -> Trained:
    """Train one model."""
    begin = time.perf_counter()
    model = job.kind(deepcopy(job.orbit), random_state=job.seed, **job.settings)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="fit was stopped|the border of these images")
            model.fit(X, y, callback=None if watch is None else lambda record: watch(job, record))
    except FloatingPointError as error:
        raise FloatingPointError(f"{job.name}, seed {job.seed}: {error}") from error
    if model.interrupted_:  # a single fit keeps the model so far; a comparison needs every model
        raise KeyboardInterrupt
    evidence = model.evidence_
    return Trained(job, evidence.value, evidence.stderr, time.perf_counter() - begin, model)


@runtime_checkable
class Keeper(Protocol):
    """Who keeps models that are done: :class:`orbitgp.comparison.keep.Kept`."""

    def save(self, trained: Trained) -> None: ...
    def load(self, job: Job) -> Trained | None: ...


def train_all(
    jobs: Sequence[Job],
    X: Any,
    y: Any,
    n_jobs: int | None = None,
    watch: Watch | None = None,
    keeper: Keeper | None = None,
) -> list[Trained]:
    """All of them, in their order, apart from those that a keeper has. Keeper and ``watch`` are called in this process; a
    worker's records arrive when its model is done."""
    results = [None if keeper is None else keeper.load(job) for job in jobs]
    todo = [number for number, found in enumerate(results) if found is None]
    live = runs_here(n_jobs, len(todo))
    if watch is not None:
        for number in set(range(len(jobs))) - set(todo):
            watch(jobs[number], None)
    task = partial(train, watch=watch if live else None)
    for number, trained in as_done(task, [jobs[number] for number in todo], n_jobs, X=X, y=y):
        results[todo[number]] = trained
        if keeper is not None:
            keeper.save(trained)
        if watch is not None:
            for record in [*([] if live else trained.model.history_), None]:
                watch(trained.job, record)
    return [trained for trained in results if trained is not None]
