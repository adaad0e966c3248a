"""Load in small: ``tests.fuzz.load`` has the same with a million rows and a hundred thousand steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import new_process
from tests.fuzz.load import predict, steps


def measure(rows: int, result: Path) -> None:
    result.write_text(str(predict(rows)["more_mb"]))


@pytest.mark.slow
def test_predictions_of_many_rows_take_flat_memory(tmp_path, monkeypatch):
    """A quarter of the rows fills one chunk. Large blocks go back to the system at once, or their heap would be measured."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(2**20))
    process = new_process.start(measure, 400_000, tmp_path / "megabytes")
    process.join(300)
    assert float((tmp_path / "megabytes").read_text()) < 60


@pytest.mark.slow
def test_many_steps_do_not_gain_memory_and_resume_exactly():
    found = steps(200)
    assert found["gained_mb"] < 5
    assert found["resumed_the_same"]
