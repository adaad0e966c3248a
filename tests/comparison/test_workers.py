"""Worker processes: results, news, errors, and what happens when somebody is killed."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest
from work_to_kill import task

from orbitgp.comparison.workers import in_processes

SCRIPT = Path(__file__).with_name("work_to_kill.py")


def together(jobs, y="", processes=2):
    told = []
    try:
        return in_processes(task, jobs, 10, y, processes, lambda number, news: told.append((number, news)), 1), told
    finally:
        assert multiprocessing.active_children() == []


def test_results_are_in_order_and_news_arrives():
    results, told = together([1, 2, 3])
    assert results == [11, 12, 13]
    assert sorted(told) == [(0, "half of 1"), (1, "half of 2"), (2, "half of 3")]


@pytest.mark.parametrize(
    ("job", "kind", "sentence"),
    [
        ("exit", RuntimeError, r"exit code 3\)"),
        ("fail", ValueError, "this cannot be."),
        ("stubborn", RuntimeError, "Stubborn: 1 and 2"),
    ],
)
def test_an_end_before_time_is_a_sentence(job, kind, sentence):
    with pytest.raises(kind, match=sentence):
        together([job], processes=1)


def test_one_that_is_killed_is_noticed_and_ends_the_others(tmp_path):
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="was killed, perhaps for want of memory"):
        together(["sleep", "die"], str(tmp_path))
    assert time.monotonic() - begin < 300  # the other one would sleep for 600


def test_workers_end_with_their_parent(tmp_path):
    parent = subprocess.Popen([sys.executable, str(SCRIPT), str(tmp_path)])
    until = time.monotonic() + 120
    while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 2:
        assert parent.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 30
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether the process runs: one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
