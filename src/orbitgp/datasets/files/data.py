"""What reading takes and returns: options, and arrays to train on or to predict for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int

from orbitgp.datasets.base import DatasetError, Task
from orbitgp.datasets.columns import Columns, column_scales
from orbitgp.machine import free_memory
from orbitgp.orbits import Orbit

PANDAS = ("sep", "decimal", "thousands", "encoding", "header", "skiprows", "comment", "na_values", "sheet_name")


@dataclass(frozen=True)
class ReadOptions(Columns):
    """How to read: what the user asked for, and what was decided while the training data were read.

    Attributes:
        target: the column of a table that holds the targets.
        targets: the .npy file of targets for a .npy file of inputs.
        image_shape: the shape of images that are stored as flat rows.
        resize: the (height, width) of image files after resizing; bars keep their aspect ratio.
        signal: whether an input is a signal (T,) or (C, T); ``image_shape`` is (C, T) if rows hold channels.
        invert: whether pixels p become 1 - p, for dark ink on a bright ground, as ``thickness`` is of bright strokes.
        colour: whether image files are read as grey (``L``) or ``RGB``; the training data decide.
        drop: columns of a table that are no inputs.
        id: the column of a table that names its rows; one called ``id`` does without being asked.
        drop_missing: whether to leave out rows of a table with missing values, rather than to refuse the table.
        impute: whether to put the median, or the commonest word, for missing inputs, and interpolate gaps of signals.
        read: options of pandas, for tables.
        strict: whether an image that cannot be read is an error, rather than left out.
        resample: whether signals of unequal length are brought to ``length`` samples by interpolation.
        length: the samples of a signal; the training data decide.
        root: the folder of named data sets.
    """

    target: str | None = None
    targets: str | None = None
    image_shape: tuple[int, ...] | None = None
    resize: tuple[int, int] | None = None
    signal: bool = False
    invert: bool = False
    colour: Literal["L", "RGB"] | None = None
    drop: tuple[str, ...] = ()
    id: str | None = None
    drop_missing: bool = False
    impute: bool = False
    read: dict[str, Any] = field(default_factory=dict)
    strict: bool = False
    resample: bool = False
    length: int | None = None
    root: str | None = None


def check_memory(needed: float | int, what: str, advice: str = "") -> None:
    """Refuse data that would take more than half of the free memory, before they are read."""
    if needed > (free := free_memory(torch.device("cpu"))) / 2:
        raise DatasetError(f"{what} {needed / 1e9:,.1f} GB, and only {free / 1e9:,.1f} GB are free{advice}.")


def read_option(text: str) -> tuple[str, Any]:
    """An option of pandas, ``KEY=VALUE``; commas separate several ``na_values``."""
    key, equals, value = (part.strip("'\"") for part in text.partition("="))  # quotes that no shell has taken away
    if key not in PANDAS or not equals:
        raise DatasetError(f"--read takes KEY=VALUE, where KEY is one of {', '.join(PANDAS)}, not {text!r}.")
    if key in ("header", "skiprows"):
        return key, int(value) if value.isdigit() else None
    return key, value.split(",") if key == "na_values" else value.replace("\\t", "\t")


@dataclass(frozen=True, eq=False)
class Data:
    """What a name, a file or a folder holds: inputs, targets if there are any, and how it was read.

    Attributes:
        rows: a name for each row; None where they have numbers only.
        notes: what a person should know about how the file was read.
        with_target: the numbers of the rows that have a target, where only some do; ``y`` has theirs.
        options: how the file was read, with all that was decided meanwhile.
        test: held-out data, of training data that have any.
        task: what all targets look like, also if only some are used to train.
    """

    x: Any
    y: Any = None
    rows: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    with_target: Int[np.ndarray, " some"] | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    test: Data | None = None
    name: str = ""
    source: str = ""
    task: Task = "regression"

    def take(self, rows: Int[np.ndarray, " some"]) -> Data:
        """Some of the rows."""
        names = None if self.rows is None else [self.rows[i] for i in rows]
        return replace(self, x=self.x[rows], y=self.y[rows], rows=names)

    def standardised(self, orbits: Sequence[Orbit] = ()) -> Data:
        """A table whose columns of numbers have mean 0 and standard deviation 1, as far as these orbits let them."""
        names = self.options.features
        options = replace(self.options, scales=column_scales(self.x, names, orbits) if names else None)
        test = None if self.test is None else replace(self.test, x=options.scaled(self.test.x))
        return replace(self, x=options.scaled(self.x), test=test, options=options)

    @property
    def task_reason(self) -> str:
        """What decides the task, as a clause."""
        if self.y.dtype.kind not in "iuf":
            return "the targets are true and false" if self.y.dtype.kind == "b" else "the targets are words"
        if self.task == "regression":
            return "the targets are numbers"
        count = len(np.unique(self.y))
        return f"the targets are {count} distinct whole numbers; --task regression takes them as numbers"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, as an orbit sees it: rows may hold images or signals."""
        return tuple(self.options.image_shape or self.x.shape[1:])

    @property
    def has_images(self) -> bool:
        """Whether an input is an image, stored as one or as a flat row."""
        return not self.options.signal and len(self.input_shape) > 1
