"""The battery: another optimiser climbs the evidence of what a default fit found."""

from __future__ import annotations

from experiments.battery import Case


def test_a_case_says_how_far_a_fit_is_behind_another_optimiser() -> None:
    found = Case(0, "iris", "none", "gaussian", 1.0, rows=12, seed=0).measure("cpu")
    assert found["inference"] == "exact"
    assert found["best"] >= found["evidence"]
    assert 0 <= found["behind"] <= found["allowed"]
