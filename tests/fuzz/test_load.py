"""Load in small: ``tests.fuzz.load`` has the same with a million rows and a hundred thousand steps."""

from __future__ import annotations

import pytest

from tests.fuzz.load import predict, steps


@pytest.mark.slow
def test_predictions_of_many_rows_take_flat_memory():
    found = predict(100_000)
    assert found["more_mb"] < 100


@pytest.mark.slow
def test_many_steps_do_not_gain_memory_and_resume_exactly():
    found = steps(200)
    assert found["gained_mb"] < 5
    assert found["resumed_the_same"]
