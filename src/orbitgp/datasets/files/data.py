"""What loading gives: arrays to train and test on, or inputs to predict for, and how they were read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Shaped

from orbitgp.datasets.embedded import stratified_split
from orbitgp.estimators.defaults import Task, task_of

_CHANNELS = (1, 3, 4)


class LoadingError(ValueError):
    """A file that is missing, damaged or not what it should be; the message says which one and what to do."""


@dataclass(frozen=True)
class Reading:
    """How to read: what the user asked for, and what was settled on while the training data were read.

    Attributes:
        target: the name of the column of a table that holds the targets.
        targets: the .npy file of the targets that belong to a .npy file of inputs.
        image_shape: the shape of the images that flat rows hold.
        resize: (height, width) that image files are brought to.
        invert: whether pixels p become 1 - p, for dark ink on a bright ground: what lies outside an image counts as 0.
        colour: whether image files are read as grey (``L``) or ``RGB``; settled by the training data.
        columns: the columns of a table that are inputs; settled by the training data.
        root: the folder of named data sets.
    """

    target: str | None = None
    targets: str | None = None
    image_shape: tuple[int, ...] | None = None
    resize: tuple[int, int] | None = None
    invert: bool = False
    colour: Literal["L", "RGB"] | None = None
    columns: tuple[str, ...] | None = None
    root: str | None = None


@dataclass(frozen=True, eq=False)
class Data:
    """Training data, and test data where there are some."""

    x_train: Shaped[np.ndarray, "train *features"]
    y_train: Shaped[np.ndarray, "train *outputs"]
    x_test: Shaped[np.ndarray, "test *features"] | None
    y_test: Shaped[np.ndarray, "test *outputs"] | None
    name: str
    source: str
    reading: Reading
    notes: list[str] = field(default_factory=list)

    @property
    def task(self) -> Task:
        """What the targets look like: classes, or numbers to regress on."""
        return task_of(self.y_train)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs to predict for, a name for each row, and targets if the file had any."""

    x: Shaped[np.ndarray, "rows *features"]
    rows: list[str]
    y: Shaped[np.ndarray, " rows"] | None = None


def checked_inputs(x: Any, where: str, reading: Reading) -> Shaped[np.ndarray, "rows *features"]:
    """Numbers that are all finite, in rows, (N, H, W) or (N, C, H, W); bytes that are pixels brought to [0, 1]."""
    x = np.asarray(x)
    if x.dtype.kind not in "buif":
        raise LoadingError(f"the inputs in {where} must be numbers, got {x.dtype}.")
    if x.ndim not in (2, 3, 4):
        raise LoadingError(f"the inputs in {where} must have shape (N, D), (N, H, W) or (N, C, H, W), got {x.shape}.")
    if not len(x):
        raise LoadingError(f"there are no inputs in {where}.")
    if x.ndim == 4 and x.shape[-1] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = np.moveaxis(x, -1, 1)
    if x.ndim == 4 and x.shape[1] == 1:
        x = x[:, 0]
    images = x.ndim > 2 or reading.image_shape is not None
    if images:
        x = x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x.astype(np.float32)
    else:
        x = x.astype(np.float64)
    if not np.isfinite(x).all():
        row = int(np.argmin(np.isfinite(x.reshape(len(x), -1)).all(1)))
        raise LoadingError(f"the inputs in {where} hold a value that is not finite in row {row + 1}.")
    return 1 - x if reading.invert else x


def checked_targets(y: Any, rows: int, where: str) -> Shaped[np.ndarray, "rows *outputs"]:
    """One target for each input; a column is a vector."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "buifUS" or y.ndim not in (1, 2):
        raise LoadingError(f"the targets in {where} must be numbers or words, one for each input, got {y.dtype} of {y.shape}.")
    if len(y) != rows:
        raise LoadingError(f"{where} has {rows} inputs but {len(y)} targets.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y.reshape(len(y), -1)).all(1)))
        raise LoadingError(f"the targets in {where} hold a value that is not finite in row {row + 1}.")
    return y


def split(
    y: Shaped[np.ndarray, "rows *outputs"], fraction: float, seed: int
) -> tuple[Shaped[np.ndarray, " train"], Shaped[np.ndarray, " test"]]:
    """Indices of a training and a test set with this fraction of the rows, of every class alike."""
    labels = np.unique(y, return_inverse=True)[1] if task_of(y) == "classification" else np.zeros(len(y))
    return stratified_split(labels.astype(np.int64), fraction, seed)
