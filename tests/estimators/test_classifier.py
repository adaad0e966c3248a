"""Degenerate classification: batches of one class, one in a thousand, data that can be told apart, labels of any
kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import GaussianNoise

pytestmark = pytest.mark.usefixtures("one_start")

NAMES = ["bernoulli", "gaussian", "dirichlet"]
SMALL: dict[str, Any] = {"num_inducing": 8, "random_state": 0}


def finite(model: InvariantGPClassifier, x: np.ndarray) -> bool:
    numbers = [float(model.evidence_), *(record["bound"] for record in model.history_), *model.predict_proba(x).ravel()]
    return bool(np.isfinite(numbers).all())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_class_in_a_minibatch(name: str) -> None:
    """Batches of one datum each, so that none holds two classes."""
    x = np.linspace(-2, 2, 12)[:, None]
    y = (x[:, 0] > 0).astype(int)
    settings = {**SMALL, "batch_size": 1, "max_steps": 4, "num_samples": 4}
    model = InvariantGPClassifier(GaussianNoise(0.1), likelihood=name, **settings).fit(x, y)
    assert finite(model, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "dirichlet"])
def test_one_in_a_thousand(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (1001, 1))
    y = np.zeros(1001, dtype=int)
    x[500], y[500] = 3.0, 1
    model = InvariantGPClassifier(likelihood=name, max_steps=8, **SMALL).fit(x, y)
    assert finite(model, x)
    rare = model.predict_proba(x)[:, 1]
    assert rare[y == 0].mean() < 0.02
    assert rare.argmax() == 500


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "dirichlet"])
def test_data_that_can_be_told_apart(name: str) -> None:
    """Two far clusters: nothing bounds the log odds but the prior, and a long training comes to rest all the same."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-5, 0.5, (20, 2)), rng.normal(5, 0.5, (20, 2))])
    y = np.repeat(["left", "right"], 20)
    model = InvariantGPClassifier(likelihood=name, max_steps=120, **SMALL).fit(x, y)
    assert finite(model, x)
    assert model.score(x, y) == 1.0
    late = [record["bound"] for record in model.history_[-20:]]
    assert max(late) - min(late) < 0.05 * abs(late[-1]) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("labels", [["no", "yes"], [-1, 1], [0, 1], [False, True], [2.0, 7.0], ["b", "a", "c"]])
def test_labels_of_any_kind(labels: list[Any]) -> None:
    x = np.linspace(-2, 2, 30)[:, None]
    y = np.array(labels)[np.arange(30) * len(labels) // 30]
    model = InvariantGPClassifier(max_steps=10, **SMALL).fit(x, y)
    assert set(model.predict(x)) == set(labels)
    assert type(model.likelihood_).__name__ == ("Bernoulli" if len(labels) == 2 else "Dirichlet")


MISSING: list[tuple[list[Any], str]] = [
    ([0.0, 1.0, np.nan, 1.0], "y contains NaN"),
    ([0.0, 1.0, np.inf, 1.0], "y contains infinity"),
    (["a", "b", None, "a"], "y contains None: every row needs a label"),
    (["a", "b", np.nan, "a"], "contains NaN"),
]


@pytest.mark.parametrize(("labels", "message"), MISSING)
def test_missing_labels(labels: list[Any], message: str) -> None:
    kind = object if isinstance(labels[0], str) else float
    with pytest.raises(ValueError, match=message):
        InvariantGPClassifier(max_steps=1).fit(np.eye(4), np.array(labels, dtype=kind))


def test_missing_targets() -> None:
    with pytest.raises(ValueError, match="y contains NaN"):
        InvariantGPRegressor(max_steps=1).fit(np.eye(4), np.array([0.0, 1.0, np.nan, 1.0]))
