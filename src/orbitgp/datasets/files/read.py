"""From what a person types to arrays: a name, a file or a folder is read, and then checked."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp import datasets
from orbitgp.datasets.base import DatasetError, stratified_split, task_of
from orbitgp.datasets.files.data import Data, ReadOptions
from orbitgp.datasets.files.formats import READERS, read_image_files, sibling_targets, without_gaps
from orbitgp.datasets.files.tables import read_table
from orbitgp.orbits.description import number
from orbitgp.orbits.images.warps import border_level, border_of

Targets = Shaped[np.ndarray, "rows *outputs"]

NAMES = ("digits", "mnist", "fashion-mnist")
_READERS = {**READERS, **dict.fromkeys((".csv", ".tsv", ".parquet", ".xlsx"), read_table)}
_CHANNELS = (1, 3, 4)
_BEYOND = 0.5  # how far pixels may lie outside of 0 to 1 without a word: sharp edges overshoot


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
        max_data: train on at most this many rows, drawn at random with the same share of every class.
        seed: the seed of these draws.
    """
    train = _read(spec, options or ReadOptions(), training=True)
    train, held_out = replace(train, task=task_of(train.y)), train.test
    if test is None and held_out is None and train.options.signal and Path(spec).stem.endswith("_TRAIN"):
        sibling = Path(spec).with_stem(Path(spec).stem.removesuffix("TRAIN") + "TEST")  # as in the signal archive
        test = sibling if sibling.is_file() else None
    if test is not None:
        held_out = load_inputs(test, train.options)
        if held_out.y is None or held_out.with_target is not None:
            raise DatasetError(f"{test} has no targets to test against, or some of them are missing.")
        _check_shape(held_out.x, train.x, str(test))
        train.notes.extend(f"{test}: {note}" for note in held_out.notes)
        held_out = replace(held_out, y=as_trained(held_out.y, train.y))
    elif test_fraction and held_out is None:
        if not 0 < test_fraction < 1:
            raise DatasetError(f"the test fraction must lie between 0 and 1, got {test_fraction}.")
        rows, others = stratified_split(train.y, test_fraction, seed)
        if not len(others):
            none = f"none of {len(train.y):,} rows"
            raise DatasetError(f"a test fraction of {test_fraction:g} leaves {none} to test: take more.")
        train, held_out = train.take(rows), train.take(others)
    if max_data is not None and max_data < len(train.x):
        others, rows = stratified_split(train.y, max_data / len(train.x), seed)
        train = train.take(np.concatenate([rows, others])[:max_data])  # shares of classes are rounded
    return replace(train, test=held_out)


def load_inputs(spec: str | Path, options: ReadOptions) -> Data:
    """New inputs, read as the training data were, with a name for each row; for a named data set, its test set."""
    found = _read(spec, options, training=False)
    return replace(found, rows=found.rows or [str(i + 1) for i in range(len(found.x))])


def as_trained(y: Targets, trained: Shaped[np.ndarray, "..."]) -> Targets:
    """The targets as words where those of training are words: some of these may be numbers."""
    return y.astype(str) if trained.dtype.kind in "US" and y.dtype.kind in "iuf" else y


def _read(spec: str | Path, options: ReadOptions, training: bool) -> Data:
    """What a name, a file or a folder holds, checked."""
    path = Path(spec)
    if (name := str(spec)) in NAMES and not path.exists():
        named = getattr(datasets, name.replace("-", "_"))(**({} if name == "digits" else {"root": options.root}))
        new = Data(named.x_test, named.y_test)
        whole = Data(named.x_train, named.y_train, options=options, test=new, name=named.name, source=named.source)
        return whole if training else new
    if not path.exists():
        other = f", and no data set of that name: {', '.join(NAMES)}" if training else ""
        raise DatasetError(f"there is no file or folder {spec}{other}.")
    inner = next((p for p in sorted(path.glob("*.npy")) if sibling_targets(p)), path)
    if not inner.is_dir() and inner.suffix.lower() not in _READERS:
        kinds = f"{', '.join(_READERS)}, a folder of class folders of images, or one of {', '.join(NAMES)}"
        raise DatasetError(f"{path} is of no kind that can be read: give {kinds}.")
    read = read_image_files if inner.is_dir() else _READERS[inner.suffix.lower()]
    found = _checked(read(inner, options, training), str(path))
    if not training:
        return found
    notes, test = [*found.notes, *_notes(found.x, found.options)], found.test
    if test is not None:
        test = _checked(replace(test, options=found.options), f"{path} (test)")
        _check_shape(test.x, found.x, f"{path} (test)")
        notes += test.notes
    return replace(found, notes=notes, test=test, name=path.stem or path.resolve().name, source=str(path))


def _checked(found: Data, where: str) -> Data:
    """Finite inputs of a known shape, pixels in 0 to 1 where they are bytes, and one target for each input."""
    x, options, notes = np.asarray(found.x), found.options, list(found.notes)
    if x.dtype.kind not in "buif":
        raise DatasetError(f"the inputs in {where} must be numbers, got {x.dtype}.")
    if not 2 <= x.ndim <= (3 if options.signal else 4):
        expected = "(N, T) or (N, C, T) for signals" if options.signal else "(N, D), (N, H, W) or (N, C, H, W)"
        raise DatasetError(f"the inputs in {where} must have shape {expected}, got {x.shape}.")
    if not len(x):
        raise DatasetError(f"there are no inputs in {where}.")
    if options.signal:
        x, options = without_gaps(x.astype(np.float64), where, options, notes)
    elif x.ndim > 2 or options.image_shape is not None:
        x = _images(x)
    else:
        x = x.astype(np.float64)
    _check_finite(x, f"the inputs in {where}")
    if options.scales is not None:
        if x.shape[1:] != (wanted := (len(options.scales),)):
            raise DatasetError(f"the inputs in {where} have shape {x.shape[1:]}, but those of training {wanted}.")
        x = options.scaled(x)
    if options.invert and (ends := _unusual_ends(x)) is not None:
        raise DatasetError(
            f"--invert turns pixels p into 1 - p, but those in {where} go from {ends}: bring them to 0 to 1 first."
        )
    count = len(x) if found.with_target is None else len(found.with_target)
    y = None if found.y is None else _targets(found.y, count, where)
    return replace(found, x=1 - x if options.invert else x, y=y, options=options, notes=notes)


def _images(x: Shaped[np.ndarray, "rows *features"]) -> Shaped[np.ndarray, "rows *image"]:
    """Images with their channels first; bytes become numbers from 0 to 1."""
    if x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS:
        if x.dtype == np.uint8 and x.shape[-1] == 4:  # transparency, shown on white
            opaque = x[..., 3:] / 255
            x = np.round(x[..., :3] * opaque + 255 * (1 - opaque)).astype(np.uint8)
        x = np.moveaxis(x, -1, 1)
    x = x[:, 0] if x.ndim == 4 and x.shape[1] == 1 else x
    return x.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)


def _targets(y: Any, rows: int, where: str) -> Targets:
    """One target for each input; a column is a vector."""
    y = np.asarray(y)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind not in "buifUS" or y.ndim not in (1, 2):
        raise DatasetError(f"the targets in {where} must be numbers or words, one a row, got {y.dtype} of {y.shape}.")
    if len(y) != rows:
        raise DatasetError(f"{where} has {rows} inputs but {len(y)} targets.")
    if y.dtype.kind == "f":
        _check_finite(y, f"the targets in {where}")
    return y


def _check_finite(values: Shaped[np.ndarray, "rows *features"], what: str) -> None:
    finite = np.isfinite(values.reshape(len(values), -1)).all(1)
    if not finite.all():
        raise DatasetError(f"{what} hold a value that is not finite in row {int(np.argmin(finite)) + 1}.")


def _check_shape(x: Shaped[np.ndarray, "..."], like: Shaped[np.ndarray, "..."], where: str) -> None:
    if x.shape[1:] != like.shape[1:]:
        raise DatasetError(f"the inputs in {where} have shape {x.shape[1:]}, but those to train on {like.shape[1:]}.")


def _unusual_ends(x: Shaped[np.ndarray, "rows *features"]) -> str | None:
    """The least and the largest pixel, as in "0 to 255", where these lie well outside of 0 to 1."""
    low, high = float(x.min()), float(x.max())
    return None if low > -_BEYOND and high < 1 + _BEYOND else f"{number(low)} to {number(high)}"


def _notes(x: Shaped[np.ndarray, "rows *features"], options: ReadOptions) -> list[str]:
    """What a person should know about these images before training on them."""
    if options.image_shape is not None and prod(options.image_shape) == x[0].size:
        x = x.reshape(len(x), *options.image_shape)
    if x.ndim < 3 or options.signal:
        return []
    notes = []
    if (ends := _unusual_ends(x)) is not None:
        notes.append(
            f"the pixels go from {ends}, and not from 0 to 1: they are taken as they are, and brightness and noise are "
            "in their units."
        )
    if (level := border_level(x)) is not None:
        lies = "its edge goes on" if border_of(x) == "edge" else "lies its mirror image"
        notes.append(f"the border of these images is about {number(level)}: outside an image {lies}.")
    return notes
