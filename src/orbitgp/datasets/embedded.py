"""The digits that come with scikit-learn: 1,797 of them, 8x8 pixels, no file and no network needed.

The set has no split of its own. Ours is stratified and drawn with a fixed seed, so that everyone who calls ``digits()`` has the
same test set.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from orbitgp.datasets.base import Dataset, Labels

Indices = tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " test"]]

_WHITE = np.float32(16)


def digits(test_fraction: float = 0.25, seed: int = 0) -> Dataset:
    """scikit-learn's 8x8 digits, with ``test_fraction`` of every class in the test set."""
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction must lie in [0, 1), got {test_fraction}.")
    from sklearn.datasets import load_digits

    raw = load_digits()
    x, y = raw.images.astype(np.float32) / _WHITE, raw.target.astype(np.int64)
    train, test = stratified_split(y, test_fraction, seed)
    return Dataset(x[train], y[train], x[test], y[test], name="digits 8x8", source="scikit-learn")


def stratified_split(y: Labels, test_fraction: float, seed: int) -> Indices:
    """Indices of a training and a test set, each in random order, with the classes in equal shares."""
    order = np.random.default_rng(seed).permutation(len(y))
    is_test = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        members = order[y[order] == label]
        is_test[members[: round(test_fraction * len(members))]] = True
    return order[~is_test[order]], order[is_test[order]]
