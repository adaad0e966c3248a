"""What tests of experiments share: small data in place of MNIST, and records with nothing in them but what is looked
at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments import (
    augmentation,
    defaults,
    figure1,
    harness,
    likelihoods,
    mnist,
    reduced_mnist,
    rotated_mnist,
    small_data,
)
from orbitgp.datasets import Dataset

TINY = {
    "num_test": 8,
    "num_inducing": 6,
    "max_steps": 2,
    "batch_size": 8,
    "num_samples": 4,
    "num_predict_samples": 4,
    "options": {"start_rows": 0},
}


@pytest.fixture(autouse=True)
def quick(one_start: None, short_ends: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far fits come is not looked at, nor how fine pictures are."""
    monkeypatch.setattr(harness.save_figure, "__defaults__", (20,))


@pytest.fixture(autouse=True)
def few_digits(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Noise in place of MNIST, whose files a test does not have."""
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 8, 8), dtype=np.float32), np.arange(40) % 10
    data = Dataset(x[:24], y[:24], x[24:], y[24:], name="noise", source="a seed")
    for module in (mnist, small_data, reduced_mnist, harness, likelihoods, figure1, augmentation):
        monkeypatch.setattr(module, "mnist", lambda: data)
    for module in (rotated_mnist, defaults):
        monkeypatch.setattr(module, "rotated_mnist", lambda num_train, num_test, seed=0: data)
    return data


@pytest.fixture
def tiny() -> dict[Any, Any]:
    """Settings of a model that trains in no time."""
    return dict(TINY)


@pytest.fixture
def record() -> Callable[..., Any]:
    """Makes a record with nothing in it but what tables and claims look at."""

    def make(
        model: Any,
        error: Any,
        evidence: Any,
        seed: int = 0,
        train: int = 60_000,
        test: int = 10_000,
        likelihood: str = "gaussian",
        **further: Any,
    ) -> dict[Any, Any]:
        budget = {"num_inducing": 9, "num_samples": 8, "batch_size": 7, "max_steps": 6}
        return {
            "name": f"{model}-{seed}",
            "settings": {"model": model, "likelihood": likelihood, "seed": seed, **budget},
            "data": {"train": train, "test": test},
            "metrics": {"error_rate": error, "nll": 0.1, "ece": 0.01},
            "evidence": {"value": evidence, "stderr": 1.0},
            "seconds": {"fit": 60.0},
            "orbit": {"angle": [-3.0, 4.5]},
            "hardware": {"cpus": 2},
            "versions": {"torch": "2"},
            **further,
        }

    return make


@pytest.fixture
def failing() -> Callable[..., Any]:
    """The claims that do not hold."""
    return lambda claims: [claim for claim, holds in claims.items() if not holds]
