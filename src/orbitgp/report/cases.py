"""Predictions for held-out data: how good they are, whether they are calibrated, and where they fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log10
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped

from orbitgp.metrics import brier, ece, error_rate, nll
from orbitgp.orbits.description import number
from orbitgp.report.finding import Fitted

MAX_ROWS = 10_000  # of the test set, which are enough for a page
BINS = 10
CERTAIN = 0.99  # predictions of at least this confidence are not called uncertain
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@runtime_checkable
class Classifies(Protocol):
    """An estimator that says how probable each class is."""

    classes_: np.ndarray

    def predict_proba(self, X: Any) -> np.ndarray: ...


@runtime_checkable
class Regresses(Protocol):
    """An estimator that predicts numbers, and how far off they may be."""

    def predict(self, X: Any, return_std: bool = False) -> Any: ...

    def predict_quantiles(self, X: Any, levels: Sequence[float]) -> np.ndarray: ...


@dataclass(frozen=True)
class Case:
    """One row of the test set: what was predicted for it, and what it is."""

    row: int
    said: str
    truth: str
    wrong: bool


@dataclass(frozen=True)
class Calibration:
    """Predicted probabilities, how often the predictions came true, and how many there were."""

    said: list[float]
    happened: list[float]
    weights: list[float]
    x_label: str
    y_label: str


@dataclass(frozen=True)
class Scores:
    """The test set in a few numbers, and its most instructive rows."""

    count: int
    headline: tuple[str, str]  # what it is called, and its value
    numbers: dict[str, str]
    calibration: Calibration
    uncertain: list[Case]
    wrong: list[Case]
    notes: list[str] = field(default_factory=list)
    all_certain: str = ""  # why there are no uncertain rows
    plain: dict[str, float] = field(default_factory=dict)  # the numbers for machines


def score(
    model: Fitted | Classifies | Regresses,
    x: Shaped[np.ndarray, "rows *features"],
    y: Shaped[np.ndarray, "rows *outputs"],
    cases: int = 6,
) -> Scores:
    """Predict the test set and score the predictions."""
    notes = []
    if len(x) > MAX_ROWS:
        notes.append(f"The first {MAX_ROWS:,} of {len(x):,} test cases.")
        x, y = x[:MAX_ROWS], y[:MAX_ROWS]
    if isinstance(model, Classifies):
        return _classes(model, x, y, cases, notes)
    assert isinstance(model, Regresses)
    return _values(model, x, y, cases, notes)


def _classes(model: Classifies, x: Any, y: Any, cases: int, notes: list[str]) -> Scores:
    known = np.isin(y, model.classes_)
    rows, strange = np.flatnonzero(known), int((~known).sum())
    if strange:
        notes.append(
            f"{strange:,} of {len(y):,} test cases are of classes that were not trained on: they count as errors only."
        )
    if not len(rows):
        raise ValueError("no test case is of a class that was trained on.")
    labels = np.searchsorted(model.classes_, y[rows])
    probs = model.predict_proba(x[rows]).astype(np.float64)
    probs /= probs.sum(1, keepdims=True)
    rate = (error_rate(probs, labels) * len(rows) + strange) / len(y)
    plain = {"error": rate, "nll": nll(probs, labels), "brier": brier(probs, labels), "ece": ece(probs, labels)}
    guess, confidence = probs.argmax(1), probs.max(1)
    entropy = -(probs * np.log(np.maximum(probs, 1e-300))).sum(1)

    def case(i: int) -> Case:
        said = f"{model.classes_[guess[i]]} ({percent(confidence[i])})"
        wrong = bool(guess[i] != labels[i])
        given = f" (given {percent(probs[i, labels[i]])})" if wrong else ""
        return Case(int(rows[i]), said, f"{model.classes_[labels[i]]}{given}", wrong)

    missed, doubtful = np.flatnonzero(guess != labels), np.flatnonzero(confidence < CERTAIN)
    certain = f"None: even the least certain prediction has a confidence of {percent(confidence.min())}."
    places = max(0, ceil(log10(len(y) / 100)))  # that tell one case
    error = f"{100 * plain['error']:.{places}f} %"
    return Scores(
        count=len(y),
        headline=("test error", error),
        numbers={
            "Error": f"{error} ({len(missed) + strange:,} of {len(y):,})",
            "Negative log likelihood": f"{_four_places(plain['nll'])} nats",
            "Brier score": _four_places(plain["brier"]),
            "Expected calibration error": f"{100 * plain['ece']:.1f} %",
        },
        calibration=_reliability(confidence, guess == labels),
        uncertain=[case(i) for i in doubtful[_highest(entropy[doubtful])][:cases].tolist()],
        wrong=[case(i) for i in missed[_highest(confidence[missed])][:cases].tolist()],
        notes=notes,
        all_certain="" if len(doubtful) else certain,
        plain=plain,
    )


def _reliability(confidence: Float[np.ndarray, " rows"], right: Shaped[np.ndarray, " rows"]) -> Calibration:
    """Accuracy against confidence, in bins of confidence."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(bins)
    used = counts > 0
    said, happened = (np.bincount(bins, weights)[used] / counts[used] for weights in (confidence, right))
    weights = counts[used].astype(float)
    labels = "confidence of the prediction", "how often it was right"
    return Calibration(said.tolist(), happened.tolist(), weights.tolist(), *labels)


def _highest(values: Float[np.ndarray, "*shape"]) -> list[int]:
    """Where the highest values stand, from the highest down; of several outputs a row, nowhere."""
    return np.argsort(-values, kind="stable").tolist() if values.ndim == 1 else []


def percent(probability: float | int) -> str:
    """As in "85 %" and "99.7 %". No probability is said to be 0 % or 100 %."""
    for places in range(3):
        text = f"{100 * probability:.{places}f}"
        if 0 < float(text) < 100:
            return f"{text} %"
    return ">99.99 %" if probability > 0.5 else "<0.01 %"


def _four_places(value: float) -> str:
    return f"{value:.4f}" if value >= 5e-5 else "<0.0001"


def _values(model: Regresses, x: Any, y: Any, cases: int, notes: list[str]) -> Scores:
    mean, std = model.predict(x, return_std=True)
    rmse = float(np.sqrt(np.mean((mean - y) ** 2)))
    spread = float(np.std(y)) or 1.0
    quantiles = model.predict_quantiles(x, [end for level in LEVELS for end in (0.5 - level / 2, 0.5 + level / 2)])
    inside = (quantiles[..., 0::2] <= y[..., None]) & (y[..., None] <= quantiles[..., 1::2])
    covered = [float(share) for share in inside.reshape(-1, len(LEVELS)).mean(0)]
    plain = {"rmse": rmse, "relative_rmse": rmse / spread, "coverage_90": covered[LEVELS.index(0.9)]}
    numbers = {
        "Root mean square error": f"{number(rmse)} ({100 * rmse / spread:.1f} % of the targets' spread)",
        "Within their 90 % intervals": f"{100 * plain['coverage_90']:.1f} %",
    }
    off = np.abs(mean - y) / np.maximum(std, 1e-300)

    def case(i: int) -> Case:
        error = number(float(std[i]))
        places = len(error.partition(".")[2])  # as many as the error has
        said = f"{number(float(mean[i]), decimals=places)} ± {error}"
        return Case(i, said, number(float(y[i]), decimals=places), bool(off[i] > 2))

    labels = "size of the predicted interval", "how often it held the target"
    return Scores(
        count=len(x),
        headline=("test error (RMSE)", number(rmse)),
        numbers=numbers,
        calibration=Calibration(list(LEVELS), covered, [1.0] * len(LEVELS), *labels),
        uncertain=[case(i) for i in _highest(std)[:cases]],
        wrong=[case(i) for i in _highest(off)[:cases]],
        notes=notes,
        plain=plain,
    )
