"""Training many models: one after the other here, or several at a time in worker processes.

joblib runs the workers. By default they are processes of this machine (loky). Under ``joblib.parallel_config("dask")`` or
``("ray")`` they are whatever the cluster offers, and nothing here changes.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import joblib
import torch
from joblib.externals.loky.process_executor import TerminatedWorkerError

from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Orbit
from orbitgp.training.diagnostics import Record

Item = TypeVar("Item")
Result = TypeVar("Result")
Estimator = InvariantGPClassifier | InvariantGPRegressor
Watch = Callable[["Job", Record | None], None]
"""Called with a job and a record of its history, or None when the job is done."""


def as_done(task: Callable[[Item], Result], items: Sequence[Item], n_jobs: int | None = None) -> Iterator[tuple[int, Result]]:
    """The results of a task, each with the number of its item, in the order in which they are done.

    Args:
        task: a function that can be pickled.
        items: its argument, one for each call.
        n_jobs: how many to run at a time, as for scikit-learn: 1 runs them in this process, -1 takes all cores, None takes what
            ``joblib.parallel_config`` says, or 1. The threads of this process are shared among the workers.
    """
    if runs_here(n_jobs, len(items)):
        yield from enumerate(map(task, items))
        return
    workers = min(joblib.effective_n_jobs(n_jobs), len(items))
    work = partial(_work, task, max(1, torch.get_num_threads() // workers), os.getpid())
    parallel = joblib.Parallel(n_jobs=workers, batch_size=1, return_as="generator_unordered")
    try:
        yield from parallel(joblib.delayed(work)(number, item) for number, item in enumerate(items))
    except TerminatedWorkerError:
        raise RuntimeError("a worker process was killed, perhaps for want of memory: train fewer models at a time.") from None


def runs_here(n_jobs: int | None, count: int) -> bool:
    """Whether so many calls run in this process."""
    if n_jobs == 0:
        raise ValueError("n_jobs must be a number of models to train at a time, or -1 for all cores, got 0.")
    return count < 2 or n_jobs == 1 or joblib.effective_n_jobs(n_jobs) == 1


def _work(task: Callable[[Item], Result], threads: int, parent: int, number: int, item: Item) -> tuple[int, Result]:
    """What a worker does with an item."""
    if os.getppid() == parent:
        _end_with(parent)
    torch.set_num_threads(threads)
    return number, task(item)


@cache
def _end_with(parent: int) -> None:
    """End this worker when its parent is killed: nobody waits for its result any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
    task = partial(train, X=X, y=y, watch=watch if live else None)
    for number, trained in as_done(task, [jobs[number] for number in todo], n_jobs):
        results[todo[number]] = trained
        if keeper is not None:
            keeper.save(trained)
        if watch is not None:
            for record in [*([] if live else trained.model.history_), None]:
                watch(trained.job, record)
    return [trained for trained in results if trained is not None]
