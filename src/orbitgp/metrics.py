"""How good predicted class probabilities are: functions of an (N, K) array of probabilities and N labels in 0 .. K-1.

The error rate looks at the most probable class alone. The NLL and the Brier score are proper: their expectation is
smallest for the true probabilities. The ECE asks whether, of all predictions made with 80 % confidence, 80 % are right.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike


def error_rate(probs: ArrayLike, labels: ArrayLike) -> float:
    """The fraction of rows whose most probable class is not the label."""
    p, y = _checked(probs, labels)
    return float(np.mean(p.argmax(1) != y))


def nll(probs: ArrayLike, labels: ArrayLike) -> float:
    """The mean of -log p(label), in nats."""
    p, y = _checked(probs, labels)
    own = p[np.arange(len(y)), y]
    # A probability that underflowed to zero costs a finite 708 nats, not infinity.
    return float(-np.mean(np.log(np.maximum(own, np.finfo(np.float64).tiny))))


def brier(probs: ArrayLike, labels: ArrayLike) -> float:
    """The mean of sum_k (p_k - [k = label])^2: from 0 (right and sure) to 2 (wrong and sure)."""
    p, y = _checked(probs, labels)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


def ece(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Expected calibration error: |accuracy - confidence| of the likeliest class, averaged over bins of confidence."""
    # sum_b n_b/N |accuracy_b - confidence_b| = 1/N sum_b |right_b - total confidence_b|
    return float(np.abs(calibration(probs, labels, bins)).sum() / len(np.asarray(labels)))


def calibration(probs: ArrayLike, labels: ArrayLike, bins: int = 15) -> Float[np.ndarray, " bins"]:
    """For each bin of confidence: how many predictions were right, less how many should be by their confidence."""
    if bins < 1:
        raise ValueError(f"ece needs at least one bin, got {bins}.")
    p, y = _checked(probs, labels)
    confidence, right = p.max(1), p.argmax(1) == y
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    return np.bincount(which, weights=right - confidence, minlength=bins)


def _checked(probs: ArrayLike, labels: ArrayLike) -> tuple[Float[np.ndarray, "rows classes"], Int[np.ndarray, " rows"]]:
    p, y = np.asarray(probs, dtype=np.float64), np.asarray(labels)
    if p.ndim != 2 or y.shape != (len(p),) or not len(p):
        raise ValueError(f"expected probabilities (N, K) and N labels, got shapes {p.shape} and {y.shape}.")
    if not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(f"labels must be integers from 0 to {p.shape[1] - 1}, the columns of the probabilities.")
    if not np.all(np.isfinite(p)) or np.any(p < 0) or not np.allclose(p.sum(1), 1.0, atol=1e-4):
        raise ValueError("probabilities must be non-negative, and every row must sum to one.")
    return p, y
