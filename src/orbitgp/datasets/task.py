"""What is asked of the targets: a class, or a number."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Shaped

Task = Literal["classification", "regression"]

MAX_CLASSES = 30  # whole numbers with more distinct values than this are taken for measurements


def task_of(y: Shaped[np.ndarray, "rows *outputs"]) -> Task:
    """Classification for words, booleans and whole numbers of few distinct values; regression for everything else."""
    if y.dtype.kind in "USOb":
        return "classification"
    if y.ndim > 1 or (y.dtype.kind == "f" and np.any(y != np.round(y))):
        return "regression"
    return "classification" if len(np.unique(y)) <= min(MAX_CLASSES, len(y) // 2) else "regression"
