"""A symmetry that holds in part: its weight is learned, between a lower and an upper end, and kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orbitgp
from orbitgp.orbits import Flip, Permutation, Weighted


def almost_symmetric(part: float, rows: int = 60) -> tuple[np.ndarray, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    y = np.sin(2 * X.sum(1)) + np.cos((X**2).sum(1)) + part * np.sin(X[:, 0] - X[:, 1]) + 0.05 * rng.normal(size=rows)
    return X, y


@pytest.mark.usefixtures("one_start")
@pytest.mark.parametrize("part", [0.0, 0.15])
def test_the_weight_is_between_none_and_all(part: float, tmp_path: Path) -> None:
    X, y = almost_symmetric(part)
    swap = Permutation.swap(0, 1)
    none, full, learned = (
        orbitgp.InvariantGPRegressor(orbit, random_state=0).fit(X, y) for orbit in (None, swap, Weighted(swap))
    )
    values = [model.evidence_.value for model in (none, full, learned)]
    assert values[2] > max(values[:2]) - 0.05  # it contains both
    low, high = learned.plausible_["weight"]
    assert low > 0.2
    if part:
        assert values[2] > max(values[:2]) + 5
        assert high < 0.499
    else:
        assert values[1] > values[0] + 5
        assert high == pytest.approx(0.5)
    weight = learned.describe()["weight"]
    assert low <= weight <= high
    learned.save(tmp_path / "model")
    loaded = orbitgp.InvariantGPRegressor.load(tmp_path / "model")
    assert loaded.describe()["weight"] == weight
    np.testing.assert_allclose(loaded.predict(X), learned.predict(X))


def test_mirror_images_with_a_weight() -> None:
    """A target that mirroring changes a little. Sparse inference says that it has no weights."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 3, 3))
    y = np.sin(X.sum((1, 2))) + 0.3 * np.tanh(X[:, 0, 0] - X[:, 0, 2]) + 0.05 * rng.normal(size=20)
    model = orbitgp.InvariantGPRegressor(Weighted(Flip()), random_state=0).fit(X, y)
    assert 0.0 <= model.describe()["weight"] <= 0.5
    assert "weight" in repr(model.describe())
    with pytest.raises(ValueError, match="need exact inference"):
        orbitgp.InvariantGPRegressor(Weighted(Flip()), inference="sparse", num_inducing=10, max_steps=2).fit(X, y)
