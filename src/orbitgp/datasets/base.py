"""A data set: two pairs of arrays, a name, and where they come from; what its targets ask for, and how it is split.

The name stays with the arrays, so that nobody takes a figure on generated data for one on a published set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64, Shaped

Task = Literal["classification", "regression"]
Indices = tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " test"]]

MAX_CLASSES = 30  # whole numbers with more distinct values than this are taken for measurements


class DatasetError(ValueError):
    """A file is missing, damaged or of the wrong kind; the message says which file and what to do."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test data. Inputs are images or signals.

    >>> data = digits()
    >>> data.name, len(data.x_train), len(data.x_test)
    ('digits 8x8', 1347, 450)
    """

    x_train: Float32[np.ndarray, "train *shape"]
    y_train: Shaped[np.ndarray, " train"]
    x_test: Float32[np.ndarray, "test *shape"]
    y_test: Shaped[np.ndarray, " test"]
    name: str
    source: str

    def __repr__(self) -> str:
        shape = "x".join(str(n) for n in self.x_train.shape[1:])
        return f"Dataset({self.name}: {len(self.x_train)} train, {len(self.x_test)} test, {shape}; {self.source})"


def data_folder(root: str | Path | None) -> Path:
    """The folder of data sets: the argument, else ORBITGP_DATA, else the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "orbitgp"
    return Path(root or os.environ.get("ORBITGP_DATA") or cache).expanduser()


def task_of(y: Shaped[np.ndarray, "rows *outputs"]) -> Task:
    """Classification for words, booleans and whole numbers of few distinct values; regression for everything else."""
    if y.dtype.kind in "USOb":
        return "classification"
    if y.ndim > 1 or (y.dtype.kind == "f" and np.any(y != np.round(y))):
        return "regression"
    return "classification" if len(np.unique(y)) <= min(MAX_CLASSES, len(y) // 2) else "regression"


def stratified_split(y: Shaped[np.ndarray, "rows *outputs"], test_fraction: float, seed: int) -> Indices:
    """Indices of a training and a test set, each in random order, with this fraction of every class in the test set."""
    order = np.random.default_rng(seed).permutation(len(y))
    classes = np.unique(y, return_inverse=True)[1] if task_of(y) == "classification" else np.zeros(len(y))
    is_test = np.zeros(len(y), dtype=bool)
    for label in np.unique(classes):
        members = order[classes[order] == label]
        is_test[members[: round(test_fraction * len(members))]] = True
    return order[~is_test[order]], order[is_test[order]]
