"""Training many models: one after the other, or several processes at a time.

Each worker process (:mod:`orbitgp.comparison.workers`) gets the data once and trains with its share of the threads. What a run
says while it trains travels back, so that one progress display serves all. Ctrl-C ends all of them.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch

from orbitgp.comparison.workers import Tell, in_processes
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Description
from orbitgp.training.diagnostics import Record

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
    purpose: str = ""  # what it is trained for, if not for the comparison itself


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: its evidence, what it learned, and how it got there."""

    job: Job
    evidence: float
    stderr: float
    seconds: float
    learned: Description
    history: list[Record]
    model: Estimator


def train(job: Job, X: Any, y: Any, watch: Watch | None = None) -> Trained:
    """Train one model."""
    begin = time.perf_counter()
    model = job.kind(deepcopy(job.orbit), random_state=job.seed, **job.settings)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="fit was stopped")
            model.fit(X, y, callback=None if watch is None else lambda record: watch(job, record))
    except FloatingPointError as error:
        raise FloatingPointError(f"{job.name}, seed {job.seed}: {error}") from error
    if model.interrupted_:  # a single fit keeps what it has; a comparison needs all of it
        raise KeyboardInterrupt
    evidence = model.evidence_
    seconds = time.perf_counter() - begin
    learned = model.orbit_.describe()
    return Trained(job, evidence.value, evidence.stderr, seconds, learned, model.history_, model)


def train_all(jobs: Sequence[Job], X: Any, y: Any, processes: int = 1, watch: Watch | None = None) -> list[Trained]:
    """All of them, in their order; ``watch`` is called in this process."""
    if processes < 1:
        raise ValueError(f"jobs must be at least 1, got {processes}.")
    processes = min(processes, len(jobs))
    if processes > 1:
        return _in_processes(jobs, X, y, processes, watch)
    results = []
    for job in jobs:
        results.append(train(job, X, y, watch))
        if watch is not None:
            watch(job, None)
    return results


def _in_processes(jobs: Sequence[Job], X: Any, y: Any, processes: int, watch: Watch | None) -> list[Trained]:
    def tell(number: int, record: Record | None) -> None:
        if watch is not None:
            watch(jobs[number], record)

    threads = max(1, torch.get_num_threads() // processes)
    return in_processes(_train_there, list(jobs), X, y, processes, tell, threads)


def _train_there(job: Job, X: Any, y: Any, tell: Tell) -> Trained:
    """What a worker process does with a job."""
    trained = train(job, X, y, lambda _, record: tell(record))
    tell(None)
    return trained


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
