"""Load in small: ``tests.fuzz.load`` has the same with a million rows and a hundred thousand steps."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from orbitgp import machine
from tests import new_process
from tests.fuzz.load import predict, steps


@pytest.mark.slow
def test_predictions_of_many_rows_take_flat_memory(tmp_path: Path) -> None:
    """A quarter of the rows fills one chunk."""
    result = tmp_path / "more"
    process = new_process.start(predict_here, 100_000, str(result))
    process.join()
    assert (
        float(result.read_text()) < 30
    )  # without chunks, the kernel between new rows and draws of inducing points takes 96 MB more


def predict_here(rows: int, result: str) -> None:
    """Large blocks go back to the system at once, or their heap would be measured."""
    ctypes.CDLL(None).mallopt(-3, 2**20)  # M_MMAP_THRESHOLD
    torch.set_num_threads(1)
    machine._halved = 2  # chunks of a quarter
    Path(result).write_text(str(predict(rows)["more_mb"]))


@pytest.mark.slow
def test_many_steps_do_not_gain_memory_and_resume_exactly() -> None:
    found = steps(60)
    assert found["gained_mb"] < 5
    assert found["resumed_the_same"]
