"""Arrays: .npz files, and pairs of .npy files. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Raw, ReadOptions
from orbitgp.inference.cost import free_memory

_INPUTS = ("x", "images", "data", "inputs", "features")
_LONGEST = 120  # characters of a reason that numpy gives
_TARGETS = ("y", "labels", "targets", "target", "label")


def read_npz(path: Path, options: ReadOptions, training: bool) -> Raw:
    """Arrays x and y, or x_train, y_train, x_test and y_test. To predict, x_test or a single array of any name will do."""
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        raise DatasetError(f"{path} is a single array: call it .npy.")
    arrays = {name.lower(): array for name, array in loaded.items()}
    train, whole, test = (_pair(arrays, suffix) for suffix in ("_train", "", "_test"))
    found = train or whole if training else whole or test
    if found is None and not training and len(arrays) == 1:
        found = next(iter(arrays.values())), None
    if found is None:
        raise DatasetError(f"{path} must hold arrays x and y (or x_train, y_train, …), got {', '.join(arrays) or 'nothing'}.")
    if training and found[1] is None:
        raise DatasetError(f"{path} has no targets: it needs an array y beside x.")
    return Raw(*found, options, test=test if train else None)


def read_npy(path: Path, options: ReadOptions, training: bool) -> Raw:
    """Inputs, and the targets in the file beside them or in ``options.targets``."""
    targets = Path(options.targets) if training and options.targets else sibling_targets(path)
    if training and targets is None:
        raise DatasetError(f"{path} has inputs only: name the file of its targets, --targets FILE.npy.")
    return Raw(_load(path), None if targets is None else _load(targets), options)


def sibling_targets(path: Path) -> Path | None:
    """The file of targets that goes with this file of inputs: x.npy and y.npy, x_train.npy and y_train.npy, …"""
    for inputs in _INPUTS:
        rest = path.stem[len(inputs) :]
        if path.stem.lower().startswith(inputs) and rest[:1] in ("", "_"):
            for name in (name for targets in _TARGETS for name in (targets, targets.upper())):
                if (candidate := path.with_name(f"{name}{rest}.npy")).is_file():
                    return candidate
    return None


def _pair(arrays: dict[str, Any], suffix: str) -> tuple[Any, Any] | None:
    """Inputs and targets whose names end so; None without them."""
    x, y = (next((arrays[n + suffix] for n in names if n + suffix in arrays), None) for names in (_INPUTS, _TARGETS))
    return None if x is None or (y is None and suffix) else (x, y)


def _check_unpacked_size(path: Path) -> None:
    """Refuse a zipped file that would not fit into memory; unpacking stops at the sizes that it announces."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    free = free_memory(torch.device("cpu"))
    if size > free / 2:
        raise DatasetError(f"{path} unpacks to {size / 1e9:.1f} GB, and only {free / 1e9:.1f} GB of memory are free.")


def _load(path: Path) -> Any:
    """The array in a .npy file, or a dictionary of those in a .npz file."""
    try:
        _check_unpacked_size(path)
        with path.open("rb") as file:  # opened here, as numpy would leave a damaged file open
            loaded = np.load(file, allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except DatasetError:
        raise
    except Exception as error:  # damaged files make numpy and zipfile raise nearly anything
        text = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")[:_LONGEST]
        if "pickle" in text.lower():  # numpy takes whatever is no file of arrays for a pickle
            text = "it holds Python objects, which are not read" if _is_of_arrays(path) else "it was made by something else"
        raise DatasetError(f"{path} is not a {path.suffix} file of numbers or words: {text}.") from None


def _is_of_arrays(path: Path) -> bool:
    """Whether this file begins as those that numpy writes, or pickle."""
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x93NUMPY", b"PK", b"\x80"))
