"""Arrays: .npz files, and pairs of .npy files. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from orbitgp.datasets.files.data import LoadingError

_INPUTS = ("x", "images", "data", "inputs", "features")
_TARGETS = ("y", "labels", "targets", "target", "label")


def read_npy(path: Path) -> Any:
    """The array in a .npy file."""
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise LoadingError(f"there is no file {path}.") from None
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise LoadingError(f"{path} is not a .npy file of numbers or words: {_sentence(error)}") from None


def read_npz(path: Path) -> dict[str, Any]:
    """The arrays in a .npz file, by names in small letters."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not hasattr(file, "files"):
                raise LoadingError(f"{path} is a single array: call it .npy.")
            return {name.lower(): file[name] for name in file.files}
    except LoadingError:
        raise
    except (ValueError, EOFError, OSError, MemoryError, KeyError, zipfile.BadZipFile) as error:
        raise LoadingError(f"{path} is not a .npz file of numbers or words: {_sentence(error)}") from None


def pair(arrays: dict[str, Any], path: Path, part: str = "") -> tuple[Any, Any] | None:
    """Inputs and targets among these arrays: x and y, or x_train and y_train for the part ``train``; None without them."""
    suffix = f"_{part}" if part else ""
    x, y = (next((arrays[n + suffix] for n in names if n + suffix in arrays), None) for names in (_INPUTS, _TARGETS))
    if x is None or (y is None and part):
        return None
    return x, y


def sibling_targets(path: Path) -> Path | None:
    """The file of targets that goes with this file of inputs: x.npy and y.npy, x_train.npy and y_train.npy, …"""
    stem = path.stem
    for inputs in _INPUTS:
        if stem.lower() == inputs or stem.lower().startswith(f"{inputs}_"):
            rest = stem[len(inputs) :]
            for targets in _TARGETS:
                for name in (targets, targets.upper()):
                    candidate = path.with_name(f"{name}{rest}.npy")
                    if candidate.is_file():
                        return candidate
    return None


def _sentence(error: BaseException) -> str:
    text = (str(error).splitlines() or ["it is damaged"])[0]
    return "it holds Python objects, which are not read." if "pickle" in text.lower() else f"{text.rstrip('.')}."
