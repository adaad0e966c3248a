"""A comparison on a local Dask cluster: the same table, though a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import pytest

distributed = pytest.importorskip("distributed")
typer_testing = pytest.importorskip("typer.testing")

from orbitgp import compare  # noqa: E402
from orbitgp.cli import processes  # noqa: E402
from orbitgp.cli.app import app  # noqa: E402
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
    killed, done = [], []

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


def test_command_line(client: Any, tmp_path: Path) -> None:
    words = ["compare", "digits", "--max-data", "40", "-o", "none", "-o", "rotation", "--refine-seconds", "0"]
    words += ["-m", "10", "--num-samples", "4", "--max-steps", "6", "--batch-size", "20", "--out", str(tmp_path / "run")]
    done = typer_testing.CliRunner().invoke(app, [*words, "--backend", "dask", "--scheduler", client.scheduler.address])
    assert done.exit_code == 0, done.output
    assert "2 models of 6 steps, 2 at a time" in done.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--backend", "dask"], "error: --backend dask needs the address of the scheduler"),
        (["--scheduler", "tcp://127.0.0.1:9"], "error: --scheduler says where a cluster is"),
        (["--backend", "dask", "--scheduler", "tcp://127.0.0.1:9"], "error: no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_bad_addresses(options: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_SECONDS", 1)
    folder = tmp_path / "run"
    done = typer_testing.CliRunner().invoke(app, ["compare", "digits", "--out", str(folder), "--quiet", *options])
    assert done.exit_code == 1
    assert done.output.splitlines()[-1].startswith(sentence)
    assert not folder.exists()
