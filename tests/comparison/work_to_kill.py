"""Tasks for worker processes, which import them; run as a script, two workers that never end by themselves."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from orbitgp.comparison.workers import in_processes


class Stubborn(Exception):
    """One that pickle cannot rebuild."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def task(job, X, y, tell):
    """Does what its job says."""
    if job == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "exit":
        os._exit(3)
    if job == "fail":
        raise ValueError("this cannot be.")
    if job == "stubborn":
        raise Stubborn(1, 2)
    if job == "sleep":
        Path(y, str(os.getpid())).touch()
        time.sleep(600)
    tell(f"half of {job}")
    return job + X


if __name__ == "__main__":
    in_processes(task, ["sleep", "sleep"], 0, sys.argv[1], 2, lambda number, news: None, 1)
