"""Scores of class probabilities, by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch

from orbitgp.metrics import brier, ece, error_rate, nll


@pytest.fixture
def predictions() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(4, 0.5), size=2000)
    return probs, np.array([rng.choice(4, p=p) for p in probs])


def test_against_sklearn(predictions: tuple[np.ndarray, np.ndarray]) -> None:
    probs, labels = predictions
    assert nll(probs, labels) == pytest.approx(sklearn.metrics.log_loss(labels, probs))
    assert error_rate(probs, labels) == pytest.approx(1 - sklearn.metrics.accuracy_score(labels, probs.argmax(1)))
    two = probs[:, :2] / probs[:, :2].sum(1, keepdims=True)
    # over two classes our score is twice scikit-learn's, which looks at one column
    assert brier(two, labels % 2) == pytest.approx(2 * sklearn.metrics.brier_score_loss(labels % 2, two[:, 1]))


def test_ece_by_hand() -> None:
    probs = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [1.0, 0.0]])
    labels = np.array([0, 0, 0, 1, 1, 0])
    # the last of ten bins holds 0.9 and 1.0: 4 of 5 right, 4.6 expected; the bin of 0.6: 1 right, 0.6 expected
    assert ece(probs, labels, bins=10) == pytest.approx((0.6 + 0.4) / 6)


def test_ece_keeps_neighbouring_bins_apart() -> None:
    # too modest at 0.95, too bold at 0.85: in one bin the two would cancel
    probs = np.array([[0.95, 0.05], [0.85, 0.15]])
    assert ece(probs, np.array([0, 1]), bins=10) == pytest.approx((0.05 + 0.85) / 2)


def test_ece_tells_calibrated_from_overconfident(predictions: tuple[np.ndarray, np.ndarray]) -> None:
    probs, labels = predictions
    sharpened = probs**4 / (probs**4).sum(1, keepdims=True)
    assert ece(probs, labels) < 0.04
    assert ece(sharpened, labels) > 0.15
    assert nll(sharpened, labels) > nll(probs, labels)


def test_extremes() -> None:
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert (nll(sure, [0, 1]), brier(sure, [0, 1]), ece(sure, [0, 1]), error_rate(sure, [0, 1])) == (0.0, 0.0, 0.0, 0.0)
    assert brier(sure, [1, 0]) == 2.0
    assert ece(sure, [1, 0]) == 1.0
    assert 700 < nll(sure, [1, 0]) < 710
    assert nll(torch.tensor(sure), torch.tensor([0, 1])) == 0.0


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([[0.5, 0.5]], [0, 1], "shapes"),
        ([0.5, 0.5], [0, 1], "shapes"),
        (np.zeros((0, 2)), np.zeros(0, dtype=int), "shapes"),
        ([[0.5, 0.5]], [2], "integers from 0 to 1"),
        ([[0.5, 0.5]], [-1], "integers"),
        ([[0.5, 0.5]], ["a"], "integers"),
        ([[0.5, 0.6]], [0], "sum to one"),
        ([[1.5, -0.5]], [0], "non-negative"),
        ([[np.nan, 1.0]], [0], "non-negative"),
    ],
)
def test_bad_input(probs: list[list[float]], labels: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nll(probs, labels)


def test_bins() -> None:
    with pytest.raises(ValueError, match="one bin"):
        ece([[0.5, 0.5]], [0], bins=0)
