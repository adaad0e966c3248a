"""Small data and quick settings, for the tests of saving."""

from __future__ import annotations

from typing import Any

import numpy as np

from orbitgp import TrainingOptions

QUICK: dict[str, Any] = {
    "max_steps": 4,
    "num_inducing": 8,
    "num_samples": 4,
    "training": TrainingOptions(num_predict_samples=8),
    "random_state": 0,
}


def table(rows: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(X[:, 0] + X[:, 1])


def pictures(rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 1, (rows, 6, 6)), np.arange(rows) % 3
