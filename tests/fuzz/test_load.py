"""Load in small: ``tests.fuzz.load`` has the same with a million rows and a hundred thousand steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.load import steps


@pytest.mark.slow
def test_predictions_of_many_rows_take_flat_memory():
    """A quarter of the rows fills one chunk. Large blocks go back to the system at once, or their heap would be measured."""
    words = [sys.executable, "-c", "from tests.fuzz.load import predict; print(predict(400_000)['more_mb'])"]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    done = subprocess.run(words, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 60


@pytest.mark.slow
def test_many_steps_do_not_gain_memory_and_resume_exactly():
    found = steps(100)
    assert found["gained_mb"] < 5
    assert found["resumed_the_same"]
