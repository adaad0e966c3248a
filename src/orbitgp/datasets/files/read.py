"""From what a person types to arrays: a name, a file or a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp import datasets
from orbitgp.datasets.files.arrays import pair, read_npy, read_npz, sibling_targets
from orbitgp.datasets.files.data import Data, Inputs, LoadingError, Reading, checked_inputs, checked_targets, split
from orbitgp.datasets.files.images import SUFFIXES as IMAGE_SUFFIXES
from orbitgp.datasets.files.images import class_folders, image_files, read_classes, read_images
from orbitgp.datasets.files.tables import read_table

NAMES = ("digits", "mnist", "fashion-mnist", "rotated-mnist")
_TABLES = (".csv", ".tsv", ".parquet")
_FORMS = ".npz, .npy, .csv, .parquet, a folder of class folders of images"

Raw = tuple[Any, Any, Reading]


def load(
    spec: str | Path,
    reading: Reading | None = None,
    test: str | Path | None = None,
    test_fraction: float = 0.0,
    max_data: int | None = None,
    seed: int = 0,
) -> Data:
    """Training and test data from a name, a file or a folder.

    Args:
        spec: one of ``NAMES``, or a path.
        reading: how to read it.
        test: another path to test on; or else ``test_fraction`` of the rows, if the data do not bring a test set of their own.
        max_data: train on so many rows at most, drawn at random, of every class alike.
        seed: of these draws.
    """
    reading = reading or Reading()
    path = Path(spec)
    if str(spec) in NAMES and not path.exists():
        data = _named(str(spec), reading)
    elif not path.exists():
        raise LoadingError(f"there is no file or folder {spec}, and no data set of that name: {', '.join(NAMES)}.")
    else:
        data = _from_path(path, reading)
    if test is not None:
        held_out = load_inputs(test, data.reading)
        if held_out.y is None:
            raise LoadingError(f"{test} has no targets to test against.")
        _same_shape(held_out.x, data.x_train, str(test))
        data = replace(data, x_test=held_out.x, y_test=held_out.y)
    elif test_fraction and data.x_test is None:
        if not 0 < test_fraction < 1:
            raise LoadingError(f"the test fraction must lie between 0 and 1, got {test_fraction}.")
        train, kept = split(data.y_train, test_fraction, seed)
        x, y = data.x_train, data.y_train
        data = replace(data, x_train=x[train], y_train=y[train], x_test=x[kept], y_test=y[kept])
    if max_data is not None and max_data < len(data.x_train):
        _, rows = split(data.y_train, max_data / len(data.x_train), seed)
        data = replace(data, x_train=data.x_train[rows], y_train=data.y_train[rows])
    return data


def load_inputs(spec: str | Path, reading: Reading) -> Inputs:
    """New inputs, read as the training data were; of a named data set, its test set."""
    path = Path(spec)
    if str(spec) in NAMES and not path.exists():
        data = _named(str(spec), reading)
        assert data.x_test is not None
        return Inputs(data.x_test, _numbered(data.x_test), data.y_test)
    if not path.exists():
        raise LoadingError(f"there is no file or folder {spec}.")
    suffix = path.suffix.lower()
    files = [path] if suffix in IMAGE_SUFFIXES else image_files(path) if path.is_dir() and not class_folders(path) else []
    if files:
        raw, _ = read_images(files, reading)
        return Inputs(checked_inputs(raw, str(path), reading), [file.name for file in files])
    x, y, _ = _raw(path, replace(reading, targets=None), need_targets=False)
    inputs = checked_inputs(x, str(path), reading)
    return Inputs(inputs, _numbered(inputs), None if y is None else checked_targets(y, len(inputs), str(path)))


def _numbered(x: Shaped[np.ndarray, "rows *features"]) -> list[str]:
    return [str(i) for i in range(len(x))]


def _named(name: str, reading: Reading) -> Data:
    where = {} if name == "digits" else {"root": reading.root}
    found = getattr(datasets, name.replace("-", "_"))(**where)
    (x, y), (x_test, y_test) = found.train, found.test
    return Data(x, y, x_test, y_test, name=found.name, source=found.source, reading=reading)


def _from_path(path: Path, reading: Reading) -> Data:
    x_test = y_test = None
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path)
        train, test = pair(arrays, path, "train"), pair(arrays, path, "test")
        if train is not None and test is not None:
            x_test, y_test = _checked(*test, f"{path} (test)", reading)
        (x, y), settled = (train or _whole(arrays, path)), reading
    elif (path / "train").is_dir() and class_folders(path / "train"):
        x, y, settled = read_classes(path / "train", reading)
        if (path / "test").is_dir():
            x_raw, y_raw, _ = read_classes(path / "test", settled)
            x_test, y_test = _checked(x_raw, y_raw, f"{path / 'test'}", settled)
    else:
        x, y, settled = _raw(path, reading, need_targets=True)
    x, y = _checked(x, y, str(path), settled)
    if x_test is not None:
        _same_shape(x_test, x, f"{path} (test)")
    notes = _notes(x, settled)
    return Data(x, y, x_test, y_test, name=path.stem or path.name, source=str(path), reading=settled, notes=notes)


def _raw(path: Path, reading: Reading, need_targets: bool) -> Raw:
    """Inputs, targets (None where there are none and none are needed) and the settled reading."""
    suffix = path.suffix.lower()
    if path.is_dir():
        arrays = [p for p in sorted(path.glob("*.npy")) if sibling_targets(p)]
        if not arrays:
            return read_classes(path, reading)
        path, suffix = arrays[0], ".npy"
    if suffix in _TABLES:
        return read_table(path, reading, need_targets)
    if suffix == ".npz":
        arrays_by_name = read_npz(path)
        found = pair(arrays_by_name, path) or pair(arrays_by_name, path, "test")
        if found is None and not need_targets and len(arrays_by_name) == 1:
            found = next(iter(arrays_by_name.values())), None
        x, y = found or _whole(arrays_by_name, path)
    elif suffix == ".npy":
        targets = Path(reading.targets) if reading.targets else sibling_targets(path)
        x, y = read_npy(path), None if targets is None else read_npy(targets)
        if y is None and need_targets:
            raise LoadingError(f"{path} has inputs only: name the file of its targets, --targets FILE.npy.")
    else:
        raise LoadingError(f"{path} is of no kind that can be read: give {_FORMS}, or one of {', '.join(NAMES)}.")
    if y is None and need_targets:
        raise LoadingError(f"{path} has no targets: it needs an array y beside x.")
    return x, y, reading


def _whole(arrays: dict[str, Any], path: Path) -> tuple[Any, Any]:
    found = pair(arrays, path)
    if found is None:
        raise LoadingError(f"{path} must hold arrays x and y (or x_train, y_train, …), got {', '.join(arrays) or 'nothing'}.")
    if found[1] is None:
        raise LoadingError(f"{path} has no targets: it needs an array y beside x.")
    return found


def _checked(x: Any, y: Any, where: str, reading: Reading) -> tuple[Any, Any]:
    inputs = checked_inputs(x, where, reading)
    return inputs, checked_targets(y, len(inputs), where)


def _same_shape(x: Shaped[np.ndarray, "..."], like: Shaped[np.ndarray, "..."], where: str) -> None:
    if x.shape[1:] != like.shape[1:]:
        raise LoadingError(f"the inputs in {where} have shape {x.shape[1:]}, but those to train on have {like.shape[1:]}.")


def _notes(x: Shaped[np.ndarray, "rows *features"], reading: Reading) -> list[str]:
    """What a person should know about these data before training on them."""
    if x.ndim < 3 or reading.invert:
        return []
    frame = np.concatenate([x[..., 0, :].ravel(), x[..., -1, :].ravel(), x[..., :, 0].ravel(), x[..., :, -1].ravel()])
    if np.median(frame) > 0.5 * x.max():
        return ["the background of these images is bright, and what lies outside an image counts as 0: consider --invert."]
    return []
