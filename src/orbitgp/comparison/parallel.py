"""Training many models: one after the other here, or several at a time in worker processes. Those that are done may be kept."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from orbitgp.comparison.workers import as_done, runs_here
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Orbit
from orbitgp.saving.container import SavedFileError
from orbitgp.training.checkpoint import digest_module
from orbitgp.training.ladder import Ladder
from orbitgp.training.learned_vector import LearnedState
from orbitgp.training.records import Record

logger = logging.getLogger("orbitgp")

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
    begin: LearnedState | None = field(default=None, repr=False)  # what an exact run begins with, instead of several starts


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
            warnings.filterwarnings("ignore", message="the border of these images|the pixels of X")
            model.fit(X, y, callback=_Watched(job, watch))
    except FloatingPointError as error:
        raise FloatingPointError(f"{job.name}, seed {job.seed}: {error}") from error
    evidence = model.evidence_
    return Trained(job, evidence.value, evidence.stderr, time.perf_counter() - begin, model)


class _Watched:
    """Shows a job to who watches it, and lets it begin where an earlier one has ended."""

    only_complete = True  # a comparison needs every model, so Ctrl-C keeps none

    def __init__(self, job: Job, watch: Watch | None) -> None:
        self.job, self.watch = job, watch

    def begin(self, trainer: object) -> None:
        if self.job.begin is not None and isinstance(trainer, Ladder):
            trainer.begin_at(self.job.begin)

    def __call__(self, record: Record) -> None:
        if self.watch is not None:
            self.watch(self.job, record)


class Kept:
    """Models of a comparison that are done, in a folder, so that a comparison that is stopped goes on where it was.

    There is a file for each model. Its name tells data, orbit and settings, so that no other job takes it for its own.
    """

    def __init__(self, folder: Path, X: Any, y: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.data = hashlib.sha256("\n".join([repr(column_names(X)), _digest(X), _digest(y)]).encode()).hexdigest()

    def path(self, job: Job) -> Path:
        """Where the model of this job is kept."""
        settings = [f"{name} {_described(value)}" for name, value in sorted(job.settings.items())]
        words = [self.data, job.name, str(job.seed), job.kind.__name__, job.purpose, *settings, digest_module(job.orbit)]
        return self.folder / f"{hashlib.sha256(chr(10).join(words).encode()).hexdigest()[:24]}.safetensors"

    def save(self, trained: Trained) -> None:
        """Keep a model that is done. If that fails, the comparison goes on without."""
        try:
            trained.model.save(self.path(trained.job))
        except (OSError, TypeError, ValueError) as error:
            logger.warning("the model of %s is not kept: %s", trained.job.name, error)

    def load(self, job: Job) -> Trained | None:
        """The model of a job that was done before, if it was."""
        path = self.path(job)
        if not path.is_file():
            return None
        modules: dict[str, Any] = {name: value for name, value in job.settings.items() if isinstance(value, nn.Module)}
        try:
            model = job.kind.load(path, orbit=job.orbit, **modules)
        except SavedFileError as error:
            logger.warning("%s: it is trained again.", error)
            return None
        return Trained(job, model.evidence_.value, model.evidence_.stderr, model.history_[-1]["seconds"], model)


def column_names(X: Any) -> list[str]:
    """The names of the columns of a data frame; none for other inputs."""
    return [str(name) for name in getattr(X, "columns", ())]


def _described(value: Any) -> str:
    """A setting in words that no other has. The words of a module leave out its numbers."""
    return digest_module(value) if isinstance(value, nn.Module) else repr(value)


def _digest(values: Any) -> str:
    """Tells arrays apart by what they hold. The memory of an array of objects holds their addresses."""
    array = np.asarray(values)
    content = repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(f"{array.dtype} {array.shape}\0".encode() + content).hexdigest()


def train_all(
    jobs: Sequence[Job],
    X: Any,
    y: Any,
    n_jobs: int | None = None,
    watch: Watch | None = None,
    keeper: Kept | None = None,
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
