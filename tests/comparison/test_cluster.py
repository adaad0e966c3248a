"""A comparison on a local Dask cluster: the same table, though a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import joblib
import pytest

distributed = pytest.importorskip("distributed")

from orbitgp import compare  # noqa: E402
from orbitgp.datasets import digits  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # those of Dask

FEW: dict[str, Any] = {"inference": "sparse", "num_inducing": 10, "num_samples": 4, "max_steps": 6, "batch_size": 20}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_nine_models_and_a_worker_killed_on_the_way(client: Any) -> None:
    data = digits()
    x, y = data.x_train[:40], data.y_train[:40]
    here = compare(x, y, n_jobs=1, **FEW)
    killed: list[int] = []
    done: list[Any] = []

    def watch(job: Any, record: Any) -> None:
        if record is None:
            done.append(job)
            if not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

    with joblib.parallel_config("dask"):
        there = compare(x, y, watch=watch, **FEW)
    assert len(done) == 9
    assert killed
    assert [row.orbit for row in there.rows] == [row.orbit for row in here.rows]
    for mine, other in zip(here.rows, there.rows, strict=True):
        assert other.evidence == pytest.approx(mine.evidence, rel=1e-5)
