"""``orbitgp learn`` by several processes that torchrun starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")

from orbitgp.cli import app as application  # noqa: E402
from orbitgp.cli import processes  # noqa: E402
from orbitgp.cli.app import app, print_errors  # noqa: E402

LEARN = [
    "learn",
    "digits",
    "--max-data",
    "60",
    "--inference",
    "sparse",
    "-m",
    "12",
    "--num-samples",
    "4",
    "--max-steps",
    "6",
    "--batch-size",
    "20",
]


@pytest.mark.slow
def test_two_processes_write_the_run_that_one_writes(tmp_path: Path) -> None:
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "orbitgp"]
    done = subprocess.run(
        [*together, *LEARN, "--out", str(tmp_path / "two"), "--json", "--quiet"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # torch says which number it takes, if it is not told
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    alone = typer_testing.CliRunner().invoke(app, [*LEARN, "--out", str(tmp_path / "one"), "--quiet"])
    assert alone.exit_code == 0, alone.output
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert json.loads(done.stdout) == two  # and the second process printed nothing
    assert two["evidence"] == pytest.approx(one["evidence"], rel=1e-4)
    assert two["evidence_without_invariance"] == pytest.approx(one["evidence_without_invariance"], rel=1e-4)
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == sorted(p.name for p in (tmp_path / "one").iterdir())


@pytest.fixture
def second_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "1")


def test_parts_are_all_rows(monkeypatch: pytest.MonkeyPatch, second_of_three: None) -> None:
    parts = []
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("RANK", rank)
        parts.append(processes.own_rows(np.arange(8)))
    assert [len(part) for part in parts] == [2, 3, 3]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(8))


def test_too_few_data(second_of_three: None) -> None:
    assert processes.own_rows(np.arange(3)) == [1]
    with pytest.raises(ValueError, match="2 data cannot be shared by 3 processes: start fewer"):
        processes.own_rows(np.arange(2))


def test_an_error_of_another_process_says_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, second_of_three: None, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(application, "_PATIENCE", 0.0)
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)

    @print_errors
    def learn() -> None:
        raise ValueError("this cannot be")

    with pytest.raises(application.typer.Exit):
        learn()
    assert capfd.readouterr().err == "error in process 1: this cannot be.\n"


def test_other_commands_run_alone(second_of_three: None) -> None:
    done = typer_testing.CliRunner().invoke(app, ["compare"])
    assert done.exit_code == 1
    assert done.output == "error: torchrun is for orbitgp learn: orbitgp compare runs in one process.\n"
