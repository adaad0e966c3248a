"""A few inputs that stand for all of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Shaped

MOST = 4


def typical_rows(x: Shaped[np.ndarray, "rows *features"], y: Shaped[np.ndarray, "rows *outputs"]) -> Int64[np.ndarray, " some"]:
    """Of classes, the inputs nearest to the means of theirs; of numbers, inputs from the first to the last."""
    y = np.asarray(y)
    if y.ndim == 1 and y.dtype.kind != "f":
        classes = np.unique(y)
        chosen = classes[np.linspace(0, len(classes) - 1, min(MOST, len(classes))).round().astype(int)]
        return np.array([_nearest_to_mean(x, np.flatnonzero(y == one)) for one in chosen])
    return np.linspace(0, len(y) - 1, min(MOST, len(y))).round().astype(np.int64)


def _nearest_to_mean(x: Shaped[np.ndarray, "rows *features"], members: Int64[np.ndarray, " members"]) -> int:
    some = x[members].reshape(len(members), -1)
    return int(members[np.square(some - some.mean(0)).sum(1).argmin()])
