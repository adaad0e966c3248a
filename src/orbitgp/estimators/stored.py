"""Inputs on disk: memory maps, and arrays in chunks, such as those of HDF5, Zarr and Dask.

They are read a batch at a time, in their own small numbers, and become floats on the device. What is small enough is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

LOADED_BYTES = 2**28  # arrays on disk up to this size, as single-precision numbers, are loaded


def parts(X: Any) -> Iterator[Any]:
    """The inputs as they are, or a part after the other where they are on disk."""
    on_disk = stored(X)
    if on_disk is None:
        yield X
        return
    rows = on_disk.shape[0]
    step = max(1, 2**26 // prod(on_disk.shape[1:]))  # 256 MB of single-precision numbers
    for start in range(0, rows, step):
        yield on_disk.read(np.arange(start, min(rows, start + step)))


class Stored(NamedTuple):
    """An array on disk: its shape, and how to read some of its rows."""

    shape: tuple[int, ...]
    read: Callable[[np.ndarray], np.ndarray]

    @property
    def is_small(self) -> bool:
        """Whether it may as well be loaded."""
        return 4 * prod(self.shape) <= LOADED_BYTES

    def loaded(self) -> np.ndarray:
        """All rows."""
        return self.read(np.arange(self.shape[0]))


def stored(X: Any) -> Stored | None:
    """These inputs as an array on disk, None if they are something else."""
    in_chunks = hasattr(X, "chunks") and hasattr(X, "shape") and not hasattr(X, "columns")  # a data frame has columns
    if not (in_chunks or isinstance(X, np.memmap)):
        return None
    take = getattr(X, "oindex", X)
    return Stored(tuple(X.shape), lambda rows: np.asarray(take[rows]))
