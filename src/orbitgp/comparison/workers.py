"""Processes that train: each gets the data once, then one job after the other through a pipe, and tells of its progress.

A pipe that closes says that its other end is gone. So a worker that is killed (for want of memory, most often) is noticed at
once, and a worker whose parent is killed ends too. What travels is pickled by value: no shared memory, which containers lack.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

Tell = Callable[[Any], None]
Task = Callable[[Any, Any, Any, Tell], Any]
"""A task gets a job, the data X and y, and a function to tell news with; it gives a result."""


class _Message(NamedTuple):
    """From a worker: news of its job, its result, or the error that ended it."""

    kind: str
    content: Any


class Worker:
    """One process. ``busy`` is the number of the job that it is at, or None."""

    def __init__(self, task: Task, X: Any, y: Any, threads: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, task, X, y, threads), daemon=True)
        self.process.start()
        theirs.close()  # else the pipe would stay open here when the worker is gone
        self.busy: int | None = None

    def begin(self, number: int, job: Any) -> None:
        self.busy = number
        try:
            _send(self.pipe, job)
        except (BrokenPipeError, ConnectionResetError):
            raise self._gone() from None

    def receive(self) -> _Message:
        """What it says next; an error that it met is raised here."""
        try:
            message = _receive(self.pipe)
        except (EOFError, ConnectionResetError):
            raise self._gone() from None
        if message.kind == "error":
            raise message.content
        return message

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def _gone(self) -> RuntimeError:
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            return RuntimeError("a training process was killed, perhaps for want of memory: train fewer at a time (jobs).")
        return RuntimeError(
            f"a training process ended before its work was done (exit code {code}): in a script, start several "
            'under if __name__ == "__main__": only.'
        )


def in_processes(
    task: Task, jobs: list[Any], X: Any, y: Any, processes: int, tell: Callable[[int, Any], None], threads: int
) -> list[Any]:
    """The results of all jobs, in their order; ``tell`` is called here, with the number of a job and its news."""
    results: dict[int, Any] = {}
    waiting = list(enumerate(jobs))[::-1]
    workers: list[Worker] = []
    try:
        for _ in range(min(processes, len(jobs))):
            workers.append(Worker(task, X, y, threads))
            workers[-1].begin(*waiting.pop())
        while len(results) < len(jobs):
            by_pipe = {worker.pipe: worker for worker in workers if worker.busy is not None}
            for ready in wait(list(by_pipe)):
                worker = by_pipe[ready]  # type: ignore[index]
                number, message = worker.busy, worker.receive()
                assert number is not None
                if message.kind == "news":
                    tell(number, message.content)
                    continue
                results[number], worker.busy = message.content, None
                if waiting:
                    worker.begin(*waiting.pop())
    finally:
        for worker in workers:
            worker.end()
    return [results[number] for number in range(len(jobs))]


def _work(pipe: Connection, task: Task, X: Any, y: Any, threads: int) -> None:
    """All that a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a worker that is killed leaves behind
    torch.set_num_threads(threads)
    while True:
        job = _receive(pipe)
        try:
            result = task(job, X, y, lambda news: _send(pipe, _Message("news", news)))
            _send(pipe, _Message("result", result))
        except Exception as error:
            _send(pipe, _Message("error", _portable(error)))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """The error itself, if it survives the journey."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _send(pipe: Connection, value: Any) -> None:
    pipe.send_bytes(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


def _receive(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())
