"""Some of the faults of :mod:`tests.fuzz.faults`, kills among them; ``make fuzz`` tries all."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("typer")

from orbitgp.cli import main
from tests.fuzz.campaign import _one
from tests.fuzz.faults import COMMANDS, bad_fault, bad_kill, broken_files, number_of_faults, run, same_model, workplace


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_a_call_that_fails_leaves_everything_whole() -> None:
    total = sum(number_of_faults(command) for command in COMMANDS)
    assert total > 100
    assert not [wrong for seed in range(2, total, 97) for wrong in bad_fault(seed)]


@pytest.mark.slow
@pytest.mark.usefixtures("empty_charts")
def test_a_run_that_is_killed_goes_on() -> None:
    assert not [wrong for seed in range(2) for wrong in bad_kill(seed)]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_folder_that_is_read_only() -> None:
    with workplace() as folder:
        folder.chmod(0o500)
        outcome = run(COMMANDS["learn"])
        folder.chmod(0o700)
        assert outcome.code == 1
        assert outcome.said == "error: run: Permission denied."


def test_an_exit_code_is_noticed() -> None:
    """The harness took every exit for a success, for typer returns the code where it is not the whole program."""
    assert run(["show", "nothing"]) == (1, "error: there is no run folder nothing.")
    assert run(["show"]).code == 2


def test_a_model_that_is_missing_is_noticed(tmp_path: Path) -> None:
    """The harness itself failed."""
    assert same_model(tmp_path / "model.safetensors", tmp_path / "other.safetensors") == ["there is no model"]


def test_an_interrupt_before_a_command_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """Loading the command line takes a second, in which there was a traceback."""
    with (
        patch("orbitgp.cli.processes.silence_others", side_effect=KeyboardInterrupt),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped.\n"


def test_a_harness_that_fails_is_a_bad_case() -> None:
    seed, wrong, _ = _one((lambda seed: [][seed], 3))
    assert seed == 3
    assert wrong == ["the harness failed: IndexError: list index out of range"]


def test_half_a_file_is_noticed(tmp_path: Path) -> None:
    """The harness sees what it is there to see."""
    (tmp_path / "result.json").write_text('{"a": ')
    (tmp_path / ".model.17.safetensors").write_text("")
    assert len(broken_files(tmp_path)) == 2
