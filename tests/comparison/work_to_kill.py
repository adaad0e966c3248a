"""Tasks for worker processes, which import them; run as a script, two workers that never end by themselves."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from orbitgp.comparison.parallel import as_done


def task(job, folder=""):
    """Does what its job says."""
    if job == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "die once" and not Path(folder, "died").exists():
        Path(folder, "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
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


if __name__ == "__main__":
    list(as_done(partial(task, folder=sys.argv[1]), ["sleep", "sleep"], 2))
