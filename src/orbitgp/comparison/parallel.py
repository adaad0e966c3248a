"""Training many models: one after the other here, or several at a time in worker processes. Those done may be kept.

joblib runs the workers. By default they are processes of this machine (loky). Under ``joblib.parallel_config("dask")``
or ``("ray")`` they are whatever the cluster offers, and nothing here changes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
import torch
from tqdm import tqdm

from orbitgp.datasets.columns import columns_of, table_of
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Orbit
from orbitgp.saving.container import SavedFileError
from orbitgp.training.checkpoint import digest_module
from orbitgp.training.records import Record

logger = logging.getLogger("orbitgp")

# What loky, Dask and Ray raise for a worker that is lost. By name, since Dask and Ray need not be installed.
_LOST = {"TerminatedWorkerError", "KilledWorker", "FutureCancelledError", "RayActorError", "WorkerCrashedError"}

Result = TypeVar("Result")
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
    purpose: str = ""  # empty for the first model of an orbit, else what another one has more


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, and the seconds that it took."""

    job: Job
    seconds: float
    model: Estimator

    @property
    def evidence(self) -> float:
        return self.model.evidence_.value


def best_of(models: Sequence[Trained]) -> Trained:
    """The one with the most evidence."""
    return max(models, key=lambda trained: trained.evidence)


def train(job: Job, X: Any, y: Any, watch: Watch | None = None) -> Trained:
    """Train one model."""

    def tell(record: Record) -> None:
        if watch is not None:
            watch(job, record)

    if begin_watching := getattr(watch, "begin", None):
        tell.begin = partial(begin_watching, job)  # type: ignore[attr-defined]
    tell.only_complete = True  # type: ignore[attr-defined]  # a comparison needs every model, so Ctrl-C keeps none
    begin = time.perf_counter()
    model = job.kind(deepcopy(job.orbit), random_state=job.seed, **job.settings)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the border of these images|the pixels of X")
            model.fit(X, y, callback=tell)
    except FloatingPointError as error:
        raise FloatingPointError(f"{job.name}, seed {job.seed}: {error}") from error
    return Trained(job, time.perf_counter() - begin, model)


def _kept(folder: Path, data: str, job: Job) -> Path:
    """Where this job's model is kept. The name tells data, orbit and settings: no other job takes it for its own."""
    settings = [
        (name, digest_module(value) if isinstance(value, torch.nn.Module) else repr(value))  # their words lack numbers
        for name, value in sorted(job.settings.items())
    ]
    told = [data, job.name, job.seed, job.kind.__name__, job.purpose, settings, digest_module(job.orbit)]
    return folder / f"{joblib.hash(told)}.safetensors"


def _load(path: Path, job: Job) -> Trained | None:
    """The model of a job that was done before, if it was."""
    if not path.is_file():
        return None
    modules: dict[str, Any] = {name: part for name, part in job.settings.items() if isinstance(part, torch.nn.Module)}
    try:
        model = job.kind.load(path, orbit=job.orbit, **modules)
    except SavedFileError as error:
        logger.warning("%s: it is trained again.", error)
        return None
    return Trained(job, model.history_[-1]["seconds"], model)


def column_names(X: Any) -> list[str]:
    """The names of the columns of a data frame, or of the inputs that are made of them; none for other inputs."""
    if (frame := table_of(X)) is not None:
        return list(columns_of(frame).features)
    return [str(name) for name in getattr(X, "columns", ())]


def train_all(
    jobs: Sequence[Job],
    X: Any,
    y: Any,
    n_jobs: int | None = None,
    watch: Watch | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> list[Trained]:
    """All of them, in their order. ``keep`` is a folder with a file for each model done, so that a stopped comparison
    goes on where it was. ``watch`` is called in this process: a worker's records arrive when its model is done."""
    paths: list[Path] = []
    if keep is not None:
        Path(keep).mkdir(parents=True, exist_ok=True)
        data = joblib.hash((column_names(X), np.asarray(X), np.asarray(y)))
        paths = [_kept(Path(keep), data, job) for job in jobs]
    results = {number: found for number, path in enumerate(paths) if (found := _load(path, jobs[number]))}
    todo = [number for number in range(len(jobs)) if number not in results]
    live = runs_here(n_jobs, len(todo))
    if watch is not None:
        for number in results:
            watch(jobs[number], None)
    task = partial(train, watch=watch if live else None)
    for place, trained in as_done(task, [jobs[number] for number in todo], n_jobs, X=X, y=y):
        results[todo[place]] = trained
        try:
            if paths:
                trained.model.save(paths[todo[place]])
        except (OSError, TypeError, ValueError) as error:  # the comparison goes on without
            logger.warning("the model of %s is not kept: %s", trained.job.name, error)
        if watch is not None:
            for record in [*([] if live else trained.model.history_), None]:
                watch(trained.job, record)
    return [results[number] for number in range(len(jobs))]


def as_done(
    task: Callable[..., Result], items: Sequence[Any], n_jobs: int | None = None, **given: Any
) -> Iterator[tuple[int, Result]]:
    """The results of a task, each with the number of its item, in the order in which they are done.

    ``n_jobs`` is that of :func:`orbitgp.compare`. The threads of this process are shared among its workers; on a
    cluster, the engine says how many a worker has, and what a lost one had in hand goes to another. ``given`` are
    further arguments, the same for each call, which an engine may send to its workers once.
    """
    if runs_here(n_jobs, len(items)):
        yield from enumerate(task(item, **given) for item in items)
        return
    workers = min(joblib.effective_n_jobs(n_jobs), len(items))
    work = partial(_work, task, max(1, torch.get_num_threads() // workers), os.getpid())
    try:
        yield from _parallel(workers)(joblib.delayed(work)(number, item, **given) for number, item in enumerate(items))
    except Exception as error:
        if not _LOST.intersection(kind.__name__ for kind in type(error).__mro__):
            raise
        reason = "a worker process was killed, perhaps for want of memory: train fewer models at a time."
        raise RuntimeError(reason) from None


def runs_here(n_jobs: int | None, count: int) -> bool:
    """Whether this many calls run in this process."""
    if n_jobs == 0:
        raise ValueError("n_jobs must be a number of models to train at a time, or -1 for all cores, got 0.")
    return count < 2 or n_jobs == 1 or joblib.effective_n_jobs(n_jobs) == 1


def _parallel(workers: int) -> joblib.Parallel:
    """An engine that gives results as they are done, or all at the end if it can do no better, as Ray's."""
    try:
        return joblib.Parallel(n_jobs=workers, batch_size=1, return_as="generator_unordered")
    except ValueError:
        return joblib.Parallel(n_jobs=workers, batch_size=1)


def _work(task: Callable[..., Result], threads: int, parent: int, number: int, item: Any, **given: Any) -> Any:
    """What a worker does with an item. Where there are several GPUs, items are dealt to them in turn."""
    if os.getppid() == parent:  # a process of this machine: engines of clusters look after their own
        _end_with(parent)
        torch.set_num_threads(threads)
        tqdm.set_lock(threading.RLock())  # its own is of the whole system, and outlives a worker that is killed
    if torch.cuda.device_count() > 1:
        torch.cuda.set_device(number % torch.cuda.device_count())
    return number, task(item, **given)


@cache
def _end_with(parent: int) -> None:
    """End this worker when its parent is killed: nobody waits for its result any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
