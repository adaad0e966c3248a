"""Inputs on disk: memory maps, HDF5 and Zarr arrays, folders of ``.npy`` files and PyTorch data sets.

They are read a batch at a time, in their own small numbers, and become floats on the device. What is small enough is loaded.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

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
    if isinstance(X, np.memmap):
        return Stored(X.shape, lambda rows: _mapped(X, rows))
    if isinstance(X, str | Path):
        return _shards(Path(X))
    if isinstance(X, Dataset):
        return _dataset(X)
    if hasattr(X, "chunks") and hasattr(X, "shape") and not hasattr(X, "columns"):  # HDF5 or Zarr; a data frame has columns
        take = getattr(X, "oindex", X)
        return Stored(tuple(X.shape), lambda rows: np.asarray(take[rows]))
    return None


def _shards(folder: Path) -> Stored:
    paths = [folder] if folder.is_file() else sorted(folder.glob("*.npy"))
    if not paths:
        raise FileNotFoundError(f"X is the folder {folder}, which holds no .npy files.")
    arrays = [_opened(path) for path in paths]
    ends = np.cumsum([len(array) for array in arrays])
    for path, array in zip(paths, arrays, strict=True):
        if array.shape[1:] != arrays[0].shape[1:] or array.dtype != arrays[0].dtype:
            expected, got = (f"{a.dtype} rows of shape {a.shape[1:]}" for a in (arrays[0], array))
            raise ValueError(
                f"all files of X must hold the same kind of rows: {paths[0].name} has {expected}, {path.name} {got}."
            )

    def read(rows: np.ndarray) -> np.ndarray:
        found = np.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype)
        which = np.searchsorted(ends, rows, side="right")
        for i in np.unique(which):
            found[which == i] = _mapped(arrays[i], rows[which == i] - (ends[i] - len(arrays[i])))
        return found

    return Stored((int(ends[-1]), *arrays[0].shape[1:]), read)


def _opened(path: Path) -> np.memmap:
    """The memory map of a file."""
    try:
        array: np.memmap = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")
        raise ValueError(f"{path} cannot be read as an array of numbers: {reason}.") from None
    if array.ndim < 2 or not len(array):
        raise ValueError(f"{path} holds an array of shape {array.shape}, but X needs rows: leave it out.")
    return array


def _mapped(array: np.memmap, rows: np.ndarray) -> np.ndarray:
    """Some rows of a memory map. Pages that were read go back to the system, which keeps them while it has room."""
    found = np.asarray(array[rows])
    memory = array.base
    while isinstance(memory, np.ndarray):  # where the array is a view of another
        memory = memory.base
    if array.mode == "r" and isinstance(memory, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)
    return found


def _dataset(X: Dataset[Any]) -> Stored:
    if not hasattr(X, "__len__") or not len(X):
        raise ValueError("X is a data set without a length, or without rows: it must know how many rows it has.")
    first = X[0]
    if isinstance(first, tuple | list):
        raise TypeError("X is a data set whose items are pairs: its items must be inputs alone, and the targets go to y.")
    return Stored((len(X), *np.asarray(first).shape), lambda rows: np.stack([np.asarray(X[int(row)]) for row in rows]))
