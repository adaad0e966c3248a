"""A data set: two pairs of arrays, a name, and where they come from.

The name stays with the arrays, so that nobody takes a figure on generated data for one on a published set.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, Shaped

Images = Float32[np.ndarray, "rows height width"]
Labels = Int64[np.ndarray, " rows"]
Pair = tuple[Images, Labels]


class DatasetError(ValueError):
    """A file is missing, damaged or of the wrong kind; the message says which file and what to do."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test data; ``train`` and ``test`` are the (x, y) pairs. Inputs are images or signals."""

    x_train: Float32[np.ndarray, "train *shape"]
    y_train: Shaped[np.ndarray, " train"]
    x_test: Float32[np.ndarray, "test *shape"]
    y_test: Shaped[np.ndarray, " test"]
    name: str
    source: str

    @property
    def train(self) -> tuple[Any, Any]:
        return self.x_train, self.y_train

    @property
    def test(self) -> tuple[Any, Any]:
        return self.x_test, self.y_test

    def __repr__(self) -> str:
        shape = "x".join(str(n) for n in self.x_train.shape[1:])
        return f"Dataset({self.name}: {len(self.x_train)} train, {len(self.x_test)} test, {shape}; {self.source})"


def data_folder(root: str | Path | None) -> Path:
    """The folder of data sets: the argument, else ORBITGP_DATA, else the user's cache."""
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get("ORBITGP_DATA"):
        return Path(named).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "orbitgp"
