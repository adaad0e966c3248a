"""Signals: dynamic time warping against its recursion, and claims from records."""

from __future__ import annotations

import numpy as np

from experiments import rivals, signals


def naive(a: np.ndarray, b: np.ndarray, reach: int) -> float:
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(len(a)):
        for j in range(max(0, i - reach), min(len(b), i + reach + 1)):
            cost[i + 1, j + 1] = (a[i] - b[j]) ** 2 + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return float(cost[-1, -1])


def test_time_warping_is_its_recursion():
    x = np.random.default_rng(0).normal(size=(4, 20))
    found = rivals._warped(x[1:], x[0], band=0.1)
    np.testing.assert_allclose(found, [naive(one, x[0], 2) for one in x[1:]])


def record(data: str, orbit: str, feature_map: str, evidence: float, accuracy: float) -> dict:
    settings = {"data": data, "model": f"{orbit}, {feature_map}", "orbit": orbit, "feature_map": feature_map, "seed": 0}
    return {"settings": settings, "evidence": {"value": evidence, "stderr": 0.1}, "metrics": {"accuracy": accuracy}}


def test_the_evidence_picks_and_the_test_set_does_not():
    found = []
    for data in signals.FIVE:
        found += [record(data, "none", "values", -20.0, 1.0), record(data, "timeshift", "values", -10.0, 0.9)]
    claims = signals.check(found)
    assert [holds for claim, holds in claims.items() if "mean accuracy" in claim] == [False]  # 0.9, though another had 1.0
    assert [holds for claim, holds in claims.items() if "an orbit in time" in claim] == [True]
    assert "timeshift, values" in signals.table(found)
