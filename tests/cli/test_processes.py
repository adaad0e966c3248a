"""``orbitgp learn`` by several processes that torchrun starts."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

typer = pytest.importorskip("typer")
typer_testing = pytest.importorskip("typer.testing")

from orbitgp.cli import app as application  # noqa: E402
from orbitgp.cli import main, processes  # noqa: E402
from orbitgp.cli.app import app, print_errors  # noqa: E402
from tests import new_process  # noqa: E402
from tests.quick_fits import short_ends  # noqa: E402

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


def one_of_two(rank: int, port: str, folder: str) -> None:
    """What a process does that torchrun has started: the environment tells it which one it is."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    torch.set_num_threads(1)
    with Path(folder, f"out{rank}").open("w") as out, Path(folder, f"err{rank}").open("w") as err:
        sys.stdout = sys.__stdout__ = out
        sys.stderr = sys.__stderr__ = err
        sys.argv = ["orbitgp", *LEARN, "--out", str(Path(folder, "two")), "--json", "--quiet"]
        with short_ends():  # as in the process of the test
            main()


@pytest.mark.slow
def test_two_processes_write_the_run_that_one_writes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    together = [new_process.start(one_of_two, rank, port, str(tmp_path)) for rank in (0, 1)]
    for process in together:
        process.join(300)
    said = [Path(tmp_path, name).read_text() for name in ("out0", "err0", "out1", "err1")]
    assert [process.exitcode for process in together] == [0, 0], said
    assert said[1:] == ["", "", ""]  # the second process printed nothing
    alone = typer_testing.CliRunner().invoke(app, [*LEARN, "--out", str(tmp_path / "one"), "--quiet"])
    assert alone.exit_code == 0, alone.output
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert json.loads(said[0]) == {name: value for name, value in two.items() if name != "checksum"}
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

    with pytest.raises(typer.Exit):
        learn()
    assert capfd.readouterr().err == "error in process 1: this cannot be.\n"


def test_other_commands_run_alone(second_of_three: None) -> None:
    done = typer_testing.CliRunner().invoke(app, ["compare"])
    assert done.exit_code == 1
    assert done.output == "error: torchrun is for orbitgp learn: orbitgp compare runs in one process.\n"
