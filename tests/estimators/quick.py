"""Settings of estimators with which a fit is quick and not worth much."""

from __future__ import annotations

from typing import Any

from orbitgp import TrainingOptions

QUICK: dict[str, Any] = {
    "max_steps": 2,
    "num_inducing": 12,
    "num_samples": 4,
    "training": TrainingOptions(num_predict_samples=8, start_rows=0, learning_rate=0.03),
    "random_state": 0,
}
