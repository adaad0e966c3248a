"""Signals: dynamic time warping against its recursion, and claims from records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import harness, rivals, signals


def naive(a: np.ndarray, b: np.ndarray, reach: int) -> float:
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(len(a)):
        for j in range(max(0, i - reach), min(len(b), i + reach + 1)):
            cost[i + 1, j + 1] = np.square(a[i] - b[j]).sum() + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return float(cost[-1, -1])


def test_time_warping_is_its_recursion() -> None:
    x = np.random.default_rng(0).normal(size=(5, 2, 20))
    found = rivals._warped(x[3:], x[:3], band=0.1)
    np.testing.assert_allclose(found, [[naive(a.T, b.T, 2) for b in x[:3]] for a in x[3:]], rtol=1e-5)


def record(data: str, orbit: str, feature_map: str, evidence: float, accuracy: float, seed: int = 0) -> dict[str, Any]:
    settings = {
        "data": data,
        "model": f"{orbit}, {feature_map}",
        "orbit": orbit,
        "feature_map": feature_map,
        "seed": seed,
    }
    found = {"settings": settings, "evidence": {"value": evidence, "stderr": 0.1}, "metrics": {"accuracy": accuracy}}
    return {**found, "seconds": 10.0, "hardware": {"cpus": 2}}


def test_the_evidence_picks_and_the_test_set_does_not() -> None:
    found = []
    for data in signals.FIVE:
        found += [record(data, "none", "values", -20.0, 1.0), record(data, "timeshift", "values", -10.0, 0.9)]
    claims = signals.check(found)
    assert [holds for claim, holds in claims.items() if "mean accuracy" in claim] == [
        False
    ]  # 0.9, though another had 1.0
    by_time = {claim.split(",")[0]: holds for claim, holds in claims.items() if "an orbit in time" in claim}
    where = ("g sees values", "g sees the same on both sides", "each side has its best view")
    assert by_time == {f"where {view}": True for view in where}  # what has not been run is not claimed
    assert "timeshift, values" in signals.table(found)


def test_seconds_are_of_what_a_user_runs() -> None:
    found = [record("Coffee", o, m, -10.0, 0.9) for o, m in signals.candidates("Coffee", 0)]
    assert "| Coffee | 10 | 10 | 20 |" in signals.table(found)
    assert [holds for claim, holds in signals.check(found).items() if "default comparison" in claim] == [True]


def resample(seed: int, accuracy: float) -> list[dict[str, Any]]:
    return [record("Coffee", "none", feature_map, -10.0, accuracy, seed) for feature_map in signals.FOR_CLASSES]


def test_a_resample_counts_when_its_feature_maps_are_there() -> None:
    found = [record("Coffee", "none", "values", -9.0, 0.8), *resample(3, 0.9)]
    assert signals.accuracies(found, "Coffee", None) == {0: 0.8, 3: 0.9}
    assert signals.accuracies(found[:-1], "Coffee", None) == {0: 0.8}
    assert "| Coffee | none, values | 0.800 (0.900) |" in signals.table(found)


def test_resamples_choose_between_the_models_that_all_of_them_have() -> None:
    found = [*resample(1, 0.9), *resample(2, 0.9), record("Coffee", "timeshift", "values", -5.0, 0.5, 1)]
    assert signals.accuracies(found, "Coffee", None) == {1: 0.9, 2: 0.9}
    found.append(record("Coffee", "timeshift", "values", -5.0, 0.5, 2))
    assert signals.accuracies(found, "Coffee", None) == {1: 0.5, 2: 0.5}


def test_packed_records_say_the_same_and_are_not_run_again(tmp_path: Path) -> None:
    of_rival = {
        "settings": {"data": "Coffee", "model": "RBF SVM", "seed": 1},
        "metrics": {"accuracy": 0.7},
        "seconds": 1.0,
    }
    archive = record("Coffee", "timeshift", "values", -9.0, 0.8) | {"orbit": {"shift": [-1.0, 1.0]}}
    found = [archive, *resample(1, 0.9), *resample(2, 0.6), of_rival]
    made = {"name": "", "commit": "0123456789", "versions": {"torch": "2"}, "hardware": {"cpus": 2}}
    found = [one | made for one in found]
    packed = signals.packed(found)
    assert len(packed) == 3
    assert signals.table(packed) == signals.table(found)
    assert signals.packed(packed) == packed
    assert signals.unpacked(packed)[0]["orbit"] == archive["orbit"]
    harness.store(tmp_path / "signals.jsonl", packed)
    options = signals.EXPERIMENT.parser().parse_args(["--data", "Coffee", "--out", str(tmp_path), "--seeds", "3"])
    runs = {(run.model, run.seed) for run in signals.plan(options)}
    assert ("RBF SVM", 2) in runs
    assert runs.isdisjoint({("RBF SVM", 1), ("none, values", 1), ("timeshift, values", 0)})


def test_all_resamples_have_their_feature_maps_before_any_has_an_orbit(tmp_path: Path) -> None:
    options = signals.EXPERIMENT.parser().parse_args(["--out", str(tmp_path), "--seeds", "4"])
    with_orbit = [run.orbit not in ("", "none") for run in signals.plan(options) if run.seed]
    assert with_orbit == sorted(with_orbit)
    assert any(with_orbit)
