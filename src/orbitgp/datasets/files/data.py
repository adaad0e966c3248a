"""What loading returns: arrays to train and test on, or inputs to predict for, and how they were read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from orbitgp.datasets.base import DatasetError
from orbitgp.datasets.embedded import Indices, stratified_split
from orbitgp.estimators.defaults import Task, task_of
from orbitgp.orbits.description import number

_CHANNELS = (1, 3, 4)
_BEYOND = 0.5  # how far pixels may lie outside of 0 to 1 without a word: sharp edges overshoot


@dataclass(frozen=True)
class ReadOptions:
    """How to read: what the user asked for, and what was decided while the training data were read.

    Attributes:
        target: the column of a table that holds the targets.
        targets: the .npy file of targets for a .npy file of inputs.
        image_shape: the shape of images that are stored as flat rows.
        resize: the (height, width) of image files after resizing; bars keep their aspect ratio.
        signal: whether an input is a signal (T,) or (C, T); ``image_shape`` then is (C, T), if rows hold several channels.
        invert: whether pixels p become 1 - p, for dark ink on a bright ground: what lies outside an image counts as 0.
        colour: whether image files are read as grey (``L``) or ``RGB``; the training data decide.
        columns: the columns of a table that are inputs; the training data decide.
        drop: columns of a table that are no inputs.
        id: the column of a table that names its rows; one called ``id`` does without being asked.
        drop_missing: whether to leave out rows of a table with missing values, rather than to refuse the table.
        impute: whether to put the median, or the most frequent word, for missing inputs.
        fills: what is put for a missing value, by column; the training data decide.
        levels: the words of each column that holds words; the training data decide. Each becomes an input of 0 and 1.
        features: the names of the inputs that were made from the columns.
        scales: (shift, unit) of each input of a standardised table.
        root: the folder of named data sets.
    """

    target: str | None = None
    targets: str | None = None
    image_shape: tuple[int, ...] | None = None
    resize: tuple[int, int] | None = None
    signal: bool = False
    invert: bool = False
    colour: Literal["L", "RGB"] | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    id: str | None = None
    drop_missing: bool = False
    impute: bool = False
    fills: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, list[str]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    scales: tuple[tuple[float, float], ...] | None = None
    root: str | None = None


class Raw(NamedTuple):
    """Arrays as a file holds them, not checked yet, and the options with all that was decided while reading.

    Attributes:
        y: the targets, or None.
        test: the (x, y) pair of a test set that comes with the training data.
        rows, test_rows: a name for each row; their numbers by default.
        notes: what a person should know about how the file was read.
        with_target: the numbers of the rows that have a target, where only some do; ``y`` has theirs.
    """

    x: Any
    y: Any
    options: ReadOptions
    test: tuple[Any, Any] | None = None
    rows: list[str] | None = None
    notes: Sequence[str] = ()
    test_rows: list[str] | None = None
    with_target: Int[np.ndarray, " some"] | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """Training data, and test data if there are any."""

    x_train: Shaped[np.ndarray, "train *features"]
    y_train: Shaped[np.ndarray, "train *outputs"]
    x_test: Shaped[np.ndarray, "test *features"] | None
    y_test: Shaped[np.ndarray, "test *outputs"] | None
    name: str
    source: str
    read_options: ReadOptions
    notes: list[str] = field(default_factory=list)
    rows_train: list[str] | None = None  # names of the rows, where they have any
    rows_test: list[str] | None = None
    task_of_all: Task | None = None  # what all targets look like, where only some were chosen to train on

    @property
    def task(self) -> Task:
        """What the targets look like: classes, or numbers to regress on."""
        return self.task_of_all or task_of(self.y_train)

    @property
    def task_reason(self) -> str:
        """What decides the task, as a clause."""
        if self.y_train.dtype.kind not in "iuf":
            return "the targets are true and false" if self.y_train.dtype.kind == "b" else "the targets are words"
        if self.task == "regression":
            return "the targets are numbers"
        count = len(np.unique(self.y_train))
        return f"the targets are {count} distinct whole numbers; --task regression takes them as numbers"

    @property
    def has_images(self) -> bool:
        """Whether an input is an image, stored as one or as a flat row."""
        return not self.has_signals and (self.x_train.ndim > 2 or self.read_options.image_shape is not None)

    @property
    def has_signals(self) -> bool:
        """Whether an input is a signal."""
        return self.read_options.signal


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs to predict for, a name for each row, targets if the file had any, and what to know of how it was read.

    ``with_target`` are the numbers of the rows that have a target, where only some do; ``y`` has theirs.
    """

    x: Shaped[np.ndarray, "rows *features"]
    rows: list[str]
    y: Shaped[np.ndarray, " *outputs"] | None = None
    notes: list[str] = field(default_factory=list)
    with_target: Int[np.ndarray, " some"] | None = None


def checked_inputs(x: Any, where: str, options: ReadOptions) -> Shaped[np.ndarray, "rows *features"]:
    """Finite numbers of shape (N, D), (N, H, W) or (N, C, H, W), or signals; pixels that are bytes are scaled to [0, 1]."""
    x = np.asarray(x)
    if x.dtype.kind not in "buif":
        raise DatasetError(f"the inputs in {where} must be numbers, got {x.dtype}.")
    if options.signal and x.ndim not in (2, 3):
        raise DatasetError(f"the signals in {where} must have shape (N, T) or (N, C, T), got {x.shape}.")
    if x.ndim not in (2, 3, 4):
        raise DatasetError(f"the inputs in {where} must have shape (N, D), (N, H, W) or (N, C, H, W), got {x.shape}.")
    if not len(x):
        raise DatasetError(f"there are no inputs in {where}.")
    if x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS:
        if x.dtype == np.uint8 and x.shape[-1] == 4:  # transparency, shown on white
            opaque = x[..., 3:] / 255
            x = np.round(x[..., :3] * opaque + 255 * (1 - opaque)).astype(np.uint8)
        x = np.moveaxis(x, -1, 1)
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    if options.signal and x.ndim == 2 and options.image_shape and prod(options.image_shape) != x.shape[1]:
        shape = "x".join(str(n) for n in options.image_shape)
        raise DatasetError(
            f"--signal-shape {shape} has {prod(options.image_shape)} samples, but rows of {where} have {x.shape[1]}."
        )
    if options.signal and x.ndim == 3 and x.shape[1] == 1:
        x = x[:, 0]
    if not options.signal and (x.ndim > 2 or options.image_shape is not None):
        x = x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)
    else:
        x = x.astype(np.float64)
    if not np.isfinite(x).all():
        row = int(np.argmin(np.isfinite(x.reshape(len(x), -1)).all(1)))
        raise DatasetError(f"the inputs in {where} hold a value that is not finite in row {row + 1}.")
    if options.scales is not None:
        shift, unit = np.array(options.scales).T
        if x.shape[1:] != shift.shape:
            raise DatasetError(f"the inputs in {where} have shape {x.shape[1:]}, but those of training {shift.shape}.")
        x = (x - shift) / unit
    if options.invert and (ends := unusual_ends(x)) is not None:
        raise DatasetError(
            f"--invert turns pixels p into 1 - p, but those in {where} go from {ends}: bring them to 0 to 1 first."
        )
    return 1 - x if options.invert else x


def unusual_ends(x: Shaped[np.ndarray, "rows *features"]) -> str | None:
    """The least and the largest pixel, as in "0 to 255", where these lie well outside of 0 to 1."""
    low, high = float(x.min()), float(x.max())
    return None if low > -_BEYOND and high < 1 + _BEYOND else f"{number(low)} to {number(high)}"


def standardised(data: Data, shared: Sequence[set[int]] = ()) -> Data:
    """A table whose columns of numbers have mean 0 and standard deviation 1; columns that are ``shared`` keep one scale.

    Columns that an orbit exchanges must share a scale, as they would not be exchangeable otherwise. Columns of 0 and 1 stay.
    """
    if not data.read_options.features or data.read_options.scales is not None:
        return data
    x = data.x_train
    scales = [(0.0, 1.0)] * x.shape[1]
    for column in range(x.shape[1]):
        group = next((sorted(some) for some in shared if column in some), [column])
        if not np.isin(x[:, group], (0, 1)).all():
            with np.errstate(over="ignore", invalid="ignore"):
                scales[column] = float(x[:, group].mean()), float(x[:, group].std()) or 1.0
            if not np.isfinite(scales[column]).all():
                name = data.read_options.features[column]
                raise DatasetError(f"column {name!r} holds numbers so large that their variance is infinite: mend them.")
    options = replace(data.read_options, scales=tuple(scales))
    shift, unit = np.array(scales).T
    test = None if data.x_test is None else (data.x_test - shift) / unit
    return replace(data, x_train=(x - shift) / unit, x_test=test, read_options=options)


def checked_targets(y: Any, rows: int, where: str) -> Shaped[np.ndarray, "rows *outputs"]:
    """One target for each input; a column is a vector."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "buifUS" or y.ndim not in (1, 2):
        raise DatasetError(f"the targets in {where} must be numbers or words, one for each input, got {y.dtype} of {y.shape}.")
    if len(y) != rows:
        raise DatasetError(f"{where} has {rows} inputs but {len(y)} targets.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y.reshape(len(y), -1)).all(1)))
        raise DatasetError(f"the targets in {where} hold a value that is not finite in row {row + 1}.")
    return y


def words_or_numbers(words: list[str]) -> Shaped[np.ndarray, " rows"]:
    """Whole numbers if all words are such, else numbers, else the words themselves. 001 and 1_1 are words: they are names."""
    if any("_" in word or re.fullmatch(r"[+-]?0\d+", word) for word in words):
        return np.array(words)
    for kind in (np.int64, np.float64):
        try:
            return np.array(words).astype(kind)
        except ValueError:
            continue
    return np.array(words)


def as_trained(
    y: Shaped[np.ndarray, "rows *outputs"], trained: Shaped[np.ndarray, "..."]
) -> Shaped[np.ndarray, "rows *outputs"]:
    """The targets as words where those of training are words: some of these may be numbers."""
    return y.astype(str) if trained.dtype.kind in "US" and y.dtype.kind in "iuf" else y


def split(y: Shaped[np.ndarray, "rows *outputs"], fraction: float, seed: int) -> Indices:
    """Indices of a training and a test set; the test set has this fraction of every class."""
    labels = np.unique(y, return_inverse=True)[1] if task_of(y) == "classification" else np.zeros(len(y))
    return stratified_split(labels.astype(np.int64), fraction, seed)
