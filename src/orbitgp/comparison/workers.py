"""A task for many items: one after the other here, or several at a time in worker processes.

joblib runs the workers. By default they are processes of this machine (loky). Under ``joblib.parallel_config("dask")`` or
``("ray")`` they are whatever the cluster offers, and nothing here changes.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import joblib
import torch
from tqdm import tqdm

Result = TypeVar("Result")

logger = logging.getLogger("orbitgp")

# What loky, Dask and Ray raise for a worker that is lost. By name, since Dask and Ray need not be installed.
_LOST = {"TerminatedWorkerError", "KilledWorker", "FutureCancelledError", "RayActorError", "WorkerCrashedError"}


def as_done(
    task: Callable[..., Result], items: Sequence[Any], n_jobs: int | None = None, **given: Any
) -> Iterator[tuple[int, Result]]:
    """The results of a task, each with the number of its item, in the order in which they are done.

    What a lost worker had in hand is handed in once more, unless the engine has done so by itself.

    Args:
        task: a function that can be pickled.
        items: its argument, one for each call.
        n_jobs: how many to run at a time, as for scikit-learn: 1 runs them in this process, -1 takes all cores, None takes what
            ``joblib.parallel_config`` says, or 1. The threads of this process are shared among its workers; on a cluster, the
            engine says how many a worker has.
        given: further arguments, the same for each call, which an engine may send to its workers once.
    """
    if runs_here(n_jobs, len(items)):
        yield from enumerate(task(item, **given) for item in items)
        return
    workers = min(joblib.effective_n_jobs(n_jobs), len(items))
    work = partial(_work, task, max(1, torch.get_num_threads() // workers), os.getpid())
    left = dict(enumerate(items))
    for last_try in (False, True):
        calls = [joblib.delayed(work)(number, item, **given) for number, item in left.items()]
        try:
            for number, result in _parallel(workers)(calls):
                yield number, result
                del left[number]
        except Exception as error:
            if not _LOST.intersection(kind.__name__ for kind in type(error).__mro__):
                raise
            if last_try:
                reason = "a worker process was killed, perhaps for want of memory: train fewer models at a time."
                raise RuntimeError(reason) from None
            logger.warning("a worker was lost: its model is handed in once more.")
        else:
            return


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


def _work(task: Callable[..., Result], threads: int, parent: int, number: int, item: Any, **given: Any) -> tuple[int, Result]:
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
