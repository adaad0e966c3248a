"""Arrays: .npz files, and pairs of .npy files. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.data import Inputs, ReadOptions
from orbitgp.machine import free_memory

_LONGEST = 120  # characters of a reason that numpy gives


def read_npz(path: Path, options: ReadOptions, training: bool) -> Inputs:
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
    return Inputs(*found, options=options, test=Inputs(*test) if train and test else None)


def read_npy(path: Path, options: ReadOptions, training: bool) -> Inputs:
    """Inputs, and the targets in the file beside them or in ``options.targets``."""
    targets = Path(options.targets) if training and options.targets else sibling_targets(path)
    if training and targets is None:
        raise DatasetError(f"{path} has inputs only: name the file of its targets, --targets FILE.npy.")
    return Inputs(_load(path), None if targets is None else _load(targets), options=options)


def sibling_targets(path: Path) -> Path | None:
    """The file of targets that goes with this file of inputs: x.npy and y.npy, x_train.npy and y_train.npy, …"""
    rest = path.stem[1:]
    beside = [path.with_name(f"{letter}{rest}.npy") for letter in "yY" if path.stem[:1] in "xX" and rest[:1] in ("", "_")]
    return next((file for file in beside if file.is_file()), None)


def _pair(arrays: dict[str, Any], suffix: str) -> tuple[Any, Any] | None:
    """Inputs and targets whose names end so; None without them."""
    x, y = arrays.get(f"x{suffix}"), arrays.get(f"y{suffix}")
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
            text = "it holds Python objects, which are not read, or something else made it"
        raise DatasetError(f"{path} is not a {path.suffix} file of numbers or words: {text}.") from None
