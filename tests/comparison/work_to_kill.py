"""Tasks for worker processes, which import them, and two programs whose workers never end by themselves."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from orbitgp.comparison.parallel import _work, as_done


def task(job: Any, folder: str = "") -> Any:
    """Does what its job says."""
    if job == "die once" and first(folder, "died"):
        while not Path(folder, "slept").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "sleep once" and first(folder, "slept"):
        time.sleep(600)
    if job == "fail":
        raise ValueError("this cannot be.")
    if job == "pid":
        return os.getpid()
    if job == "threads":
        return torch.get_num_threads()
    if job == "sleep":
        for _ in tqdm([0], disable=False, file=io.StringIO()):
            pass  # a bar makes a lock, which is of no process if it is one of the system
        Path(folder, str(os.getpid())).touch()
        time.sleep(600)
    return 10 + job if isinstance(job, int) else job


def first(folder: str, name: str) -> bool:
    """Whether this is the first time."""
    path = Path(folder, name)
    if path.exists():
        return False
    path.touch()
    return True


def work_in_a_fork(folder: str) -> None:
    """As a worker of joblib, but for its import of torch."""
    parent = os.getpid()
    if os.fork() == 0:
        _work(task, 1, parent, 0, "sleep", folder=folder)
    os.wait()


def two_sleep(folder: str, said: str) -> None:
    """Two workers, as from a terminal: in a process group of their own."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    list(as_done(task, ["sleep", "sleep"], 2, folder=folder))
