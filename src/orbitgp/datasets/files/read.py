"""From what a person types to arrays: a name, a file or a folder."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp import datasets
from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.files.arrays import read_npy, read_npz, sibling_targets
from orbitgp.datasets.files.data import (
    Data,
    Inputs,
    Raw,
    ReadOptions,
    as_trained,
    checked_inputs,
    checked_targets,
    split,
    unusual_ends,
)
from orbitgp.datasets.files.images import SUFFIXES as IMAGE_SUFFIXES
from orbitgp.datasets.files.images import read_image_files
from orbitgp.datasets.files.signals import read_ts
from orbitgp.datasets.files.tables import read_table
from orbitgp.estimators.images import border_level
from orbitgp.orbits.description import number

NAMES = ("digits", "mnist", "fashion-mnist", "rotated-mnist")
_READERS = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".csv": read_table,
    ".tsv": read_table,
    ".parquet": read_table,
    ".xlsx": read_table,
    ".ts": read_ts,
}
_FORMS = ".npz, .npy, .csv, .parquet, .xlsx, .ts, a folder of class folders of images"


def load(
    spec: str | Path,
    options: ReadOptions | None = None,
    test: str | Path | None = None,
    test_fraction: float = 0.0,
    max_data: int | None = None,
    seed: int = 0,
) -> Data:
    """Training and test data from a name, a file or a folder.

    Args:
        spec: one of ``NAMES``, or a path.
        options: how to read it.
        test: a path of held-out data.
        test_fraction: the fraction of rows to hold out if there is no test set.
        max_data: train on at most so many rows, drawn at random with the same share of every class.
        seed: the seed of these draws.
    """
    options = options or ReadOptions()
    path = Path(spec)
    if str(spec) in NAMES and not path.exists():
        data = _named(str(spec), options)
    elif not path.exists():
        raise DatasetError(f"there is no file or folder {spec}, and no data set of that name: {', '.join(NAMES)}.")
    else:
        data = _from_path(path, options)
    data = replace(data, task_of_all=data.task)
    if test is not None:
        held_out = load_inputs(test, data.read_options)
        if held_out.y is None or held_out.with_target is not None:
            raise DatasetError(f"{test} has no targets to test against, or some of them are missing.")
        _same_shape(held_out.x, data.x_train, str(test))
        notes = [*data.notes, *(f"{test}: {note}" for note in held_out.notes)]
        targets = as_trained(held_out.y, data.y_train)
        data = replace(data, x_test=held_out.x, y_test=targets, rows_test=held_out.rows, notes=notes)
    elif test_fraction and data.x_test is None:
        if not 0 < test_fraction < 1:
            raise DatasetError(f"the test fraction must lie between 0 and 1, got {test_fraction}.")
        train, kept = split(data.y_train, test_fraction, seed)
        if not len(kept):
            raise DatasetError(
                f"a test fraction of {test_fraction:g} leaves none of {len(data.y_train):,} rows to test: take more."
            )
        x, y, names = data.x_train, data.y_train, data.rows_train
        data = replace(data, x_train=x[train], y_train=y[train], x_test=x[kept], y_test=y[kept])
        if names is not None:
            data = replace(data, rows_train=[names[i] for i in train], rows_test=[names[i] for i in kept])
    if max_data is not None and max_data < len(data.x_train):
        others, rows = split(data.y_train, max_data / len(data.x_train), seed)
        rows = np.concatenate([rows, others])[:max_data]  # shares of classes are rounded, the number of rows is not
        names = None if data.rows_train is None else [data.rows_train[i] for i in rows]
        data = replace(data, x_train=data.x_train[rows], y_train=data.y_train[rows], rows_train=names)
    return data


def load_inputs(spec: str | Path, options: ReadOptions) -> Inputs:
    """New inputs, read as the training data were; for a named data set, its test set."""
    path = Path(spec)
    if str(spec) in NAMES and not path.exists():
        data = _named(str(spec), options)
        assert data.x_test is not None
        return Inputs(data.x_test, _numbered(data.x_test), data.y_test)
    if not path.exists():
        raise DatasetError(f"there is no file or folder {spec}.")
    raw = _read(path, options, training=False)
    x = checked_inputs(raw.x, str(path), options)
    count = len(x) if raw.with_target is None else len(raw.with_target)
    y = None if raw.y is None else checked_targets(raw.y, count, str(path))
    return Inputs(x, raw.rows or _numbered(x), y, list(raw.notes), raw.with_target)


def _numbered(x: Shaped[np.ndarray, "rows *features"]) -> list[str]:
    return [str(i) for i in range(len(x))]


def _named(name: str, options: ReadOptions) -> Data:
    root = {} if name == "digits" else {"root": options.root}
    found = getattr(datasets, name.replace("-", "_"))(**root)
    (x, y), (x_test, y_test) = found.train, found.test
    return Data(x, y, x_test, y_test, name=found.name, source=found.source, read_options=options)


def _from_path(path: Path, options: ReadOptions) -> Data:
    raw = _read(path, options, training=True)
    x, y = _checked(raw.x, raw.y, str(path), raw.options)
    if x.ndim > 2 and not raw.options.signal and (np.ptp(x.reshape(len(x), -1), axis=1) == 0).all():
        raise DatasetError(f"every image in {path} is of one colour all over: there is nothing to learn from.")
    x_test, y_test = None, None
    if raw.test is None and (held_out := _test_beside(path, raw.options)) is not None:
        other = _read(held_out, raw.options, training=True)
        raw = raw._replace(test=(other.x, other.y))
    if raw.test is not None:
        x_test, y_test = _checked(*raw.test, f"{path} (test)", raw.options)
        _same_shape(x_test, x, f"{path} (test)")
    notes = [*raw.notes, *_notes(x, raw.options)]
    name = path.stem or path.name
    return Data(
        x,
        y,
        x_test,
        y_test,
        name,
        str(path),
        read_options=raw.options,
        notes=notes,
        rows_train=raw.rows,
        rows_test=raw.test_rows,
    )


def _test_beside(path: Path, options: ReadOptions) -> Path | None:
    """The test set of a signal archive: NAME_TEST beside NAME_TRAIN."""
    if not options.signal or not path.stem.endswith("_TRAIN"):
        return None
    beside = path.with_stem(path.stem.removesuffix("_TRAIN") + "_TEST")
    return beside if beside.is_file() else None


def _read(path: Path, options: ReadOptions, training: bool) -> Raw:
    """The file or folder, read by the function for its kind."""
    pairs = [p for p in sorted(path.glob("*.npy")) if sibling_targets(p)] if path.is_dir() else []
    path = pairs[0] if pairs else path
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in IMAGE_SUFFIXES:
        return read_image_files(path, options, training)
    if suffix not in _READERS:
        raise DatasetError(f"{path} is of no kind that can be read: give {_FORMS}, or one of {', '.join(NAMES)}.")
    return _READERS[suffix](path, options, training)


def _checked(x: Any, y: Any, where: str, options: ReadOptions) -> tuple[Any, Any]:
    inputs = checked_inputs(x, where, options)
    return inputs, checked_targets(y, len(inputs), where)


def _same_shape(x: Shaped[np.ndarray, "..."], like: Shaped[np.ndarray, "..."], where: str) -> None:
    if x.shape[1:] != like.shape[1:]:
        raise DatasetError(f"the inputs in {where} have shape {x.shape[1:]}, but those to train on have {like.shape[1:]}.")


def _notes(x: Shaped[np.ndarray, "rows *features"], options: ReadOptions) -> list[str]:
    """What a person should know about these data before training on them."""
    if options.image_shape is not None and prod(options.image_shape) == x[0].size:
        x = x.reshape(len(x), *options.image_shape)
    if x.ndim < 3 or options.signal:
        return []
    notes = []
    if (ends := unusual_ends(x)) is not None:
        notes.append(
            f"the pixels go from {ends}, and not from 0 to 1: they are taken as they are, and brightness and noise are in "
            "their units."
        )
    if (level := border_level(x)) is not None:
        usual = "do without --invert" if options.invert else "consider --invert"
        remedy = usual if ends is None else "bring the background to 0"
        notes.append(
            f"the background of these images is about {number(level)}, and what lies outside an image counts as 0: {remedy}."
        )
    return notes
