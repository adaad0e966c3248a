"""Odd against even: what is planned and recorded, and which claims follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import harness, odd_even


@pytest.mark.slow
def test_odd_even_through_the_command_line(few_digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "digits", lambda: few_digits)
    monkeypatch.setattr(odd_even, "QUICK", odd_even.QUICK | {"max_seconds": 0.1})
    claims = odd_even.EXPERIMENT.main(["--quick", "--sizes", "20", "--rotated", "45", "90", "--out", str(tmp_path)])
    found = harness.load(tmp_path / "odd_even.jsonl").values()
    assert [r["settings"]["model"] for r in found] == ["none", "rotation"] * 2
    assert {r["evidence"]["likelihood"] for r in found} == {"Bernoulli"}
    assert len(claims) == 2
    (tmp_path / "odd_even.png").unlink()
    assert odd_even.EXPERIMENT.main(["--quick", "--draw", "--out", str(tmp_path)]) == claims
    assert (tmp_path / "odd_even.png").exists()
    assert list(odd_even.OddEven("none", "none", rotated=90.0).data().y_train[:4]) == [0, 1, 0, 1]


def test_odd_even_claims_and_table(failing: Any, tmp_path: Path) -> None:
    def record(
        model: str, error: float, evidence: Any, angle: Any = None, rotated: float = 90.0, seed: int = 0
    ) -> dict[Any, Any]:
        return {
            "settings": {"model": model, "rotated": rotated, "num_train": 60_000, "seed": seed},
            "inference": "sparse",
            "orbit": {} if angle is None else {"degrees": angle},
            "evidence": {"value": evidence},
            "metrics": {"error_rate": error},
            "seconds": {"fit": 10.0 if model == "none" else 30.0},
        }

    good = [record("none", 0.2, 100.0), record("rotation", 0.1, 250.0, 80.5)]
    again = [record("none", 0.2, 100.0, seed=1), record("rotation", 0.12, 150.0, 92.0, seed=1)]
    assert len(odd_even.check([*good, *again])) == 2
    assert failing(odd_even.check([*good, *again])) == []
    title = "60,000 digits rotated within ±90°"
    assert f"| {title} | sparse | 80.5°, 92° | +100 nats | 20.00 % | 11.00 % | 10 and 30 |" in odd_even.table(
        [*again, *good]
    )
    worse = [record("none", 0.2, 100.0, seed=1), record("rotation", 0.1, 99.0, 79.0, seed=1)]
    assert failing(odd_even.check([*good, *worse])) == [
        f"{title}: learned beats no orbit in error and evidence",
        f"{title}: every learned angle is at least 80°",
    ]
    half_turn = [
        {**r, "settings": r["settings"] | {"rotated": 180.0}} for r in (good[0], record("rotation", 0.1, 250.0, 149.0))
    ]
    assert failing(odd_even.check(half_turn)) == [
        "60,000 digits rotated within ±180°: every learned angle is at least 150°"
    ]
    odd_even.figure(good[:1], tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()
