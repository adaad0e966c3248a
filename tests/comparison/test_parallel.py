"""Worker processes: results as they are done, errors, threads, and what happens when somebody is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import ThreadingBackend

from orbitgp.comparison.compare import compare
from orbitgp.comparison.parallel import Job, as_done, train_all
from orbitgp.estimators import InvariantGPRegressor
from orbitgp.orbits import Identity
from tests import new_process
from tests.comparison.work_to_kill import task, two_sleep, work_in_a_fork

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def quick_to_begin() -> Iterator[None]:
    """A worker that began with an empty memory would import torch, which takes seconds."""
    with new_process.workers_of_loky():
        yield


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_each_result_has_the_number_of_its_item(n_jobs: int | None) -> None:
    assert dict(as_done(task, [1, 2, 3], n_jobs)) == {0: 11, 1: 12, 2: 13}


def test_one_job_runs_here_and_several_do_not() -> None:
    assert dict(as_done(task, ["pid", "pid"], 1)) == {0: os.getpid(), 1: os.getpid()}
    assert os.getpid() not in dict(as_done(task, ["pid", "pid"], 2)).values()


def test_joblib_says_how_many_where_nobody_else_does() -> None:
    with joblib.parallel_config("loky", n_jobs=2):
        assert os.getpid() not in dict(as_done(task, ["pid", "pid"])).values()


def test_an_engine_that_gives_all_results_at_the_end() -> None:
    class AtTheEnd(ThreadingBackend):
        supports_return_generator = False

    joblib.register_parallel_backend("at the end", AtTheEnd)
    with joblib.parallel_config("at the end"):
        assert dict(as_done(task, [1, 2, 3], 2)) == {0: 11, 1: 12, 2: 13}


def test_workers_share_the_threads_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert dict(as_done(task, ["threads", "threads"], 2)) == {0: 3, 1: 3}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert dict(as_done(task, ["threads", "threads"], 2)) == {0: 1, 1: 1}


def test_large_data_reach_the_workers() -> None:
    """joblib hands arrays of more than a megabyte over as read-only files."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 500)), rng.normal(size=300)
    assert x.nbytes > 2**20
    jobs = [Job("none", Identity(), seed, InvariantGPRegressor, {"num_inducing": 8, "max_steps": 3}) for seed in (0, 1)]
    here = train_all(jobs, x, y, 1)
    with new_process.workers():
        there = train_all(jobs, x, y, 2)
    assert [t.evidence for t in there] == pytest.approx([t.evidence for t in here], rel=1e-5)


def test_one_that_is_killed_is_noticed_and_ends_the_others(tmp_path: Path) -> None:
    """It ends all workers, so this comes after the tests that can share them."""
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"^a worker process was killed, perhaps for want of memory: [^\n]*\.$"):
        list(as_done(task, [1, "sleep once", "die once", 2], 2, folder=str(tmp_path)))
    assert time.monotonic() - begin < 300  # the other one would have slept for 600


def test_an_error_of_a_worker_arrives_as_it_is() -> None:
    with new_process.workers(), pytest.raises(ValueError, match="this cannot be"):
        list(as_done(task, [1, "fail"], 2))


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = new_process.start(work_in_a_fork, str(tmp_path))
    pids = begun(tmp_path, 1, parent)
    parent.kill()
    parent.join()
    wait_until(lambda: not any(map(alive, pids)), 30)


def test_ctrl_c_in_a_terminal_ends_all_workers(tmp_path: Path) -> None:
    """It reaches the workers, too."""
    said = tmp_path / "stderr"
    parent = new_process.start(two_sleep, str(tmp_path), str(said))
    pids = begun(tmp_path, 2, parent)
    os.killpg(parent.pid, signal.SIGINT)
    parent.join()
    wait_until(lambda: not any(map(alive, pids)), 30)
    assert "leaked semaphore" not in said.read_text()


def begun(folder: Path, count: int, parent: BaseProcess) -> list[int]:
    """The processes that have begun to sleep, as soon as there are this many."""

    def found() -> list[int]:
        return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]

    wait_until(lambda: len(found()) == count or not parent.is_alive(), 120)
    assert parent.is_alive()
    return found()


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_ctrl_c_ends_a_comparison_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A model that is not complete is of no use to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    records = []

    def watch(job: Any, record: Any) -> None:
        records.append(record)
        signal.raise_signal(signal.SIGINT)

    rng = np.random.default_rng(0)
    try:
        with pytest.raises(KeyboardInterrupt):
            compare(rng.normal(size=(30, 2)), rng.normal(size=30), ["none", "noise"], watch=watch)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(records) == 1
    assert "finishing the model" not in caplog.text


def alive(pid: int) -> bool:
    """Whether the process runs: one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
