"""The rotated MNIST of the Montreal group (Larochelle et al., 2007): text, one image a line, 784 pixels and a label.

Pixels are stored column by column, so images are transposed on reading. The files are not downloaded.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from orbitgp.datasets.base import Dataset, DatasetError, Pair, data_folder

_SIDE, _CLASSES = 28, 10
_FILES = ("mnist_all_rotation_normalized_float_train_valid.amat", "mnist_all_rotation_normalized_float_test.amat")


def read_amat(path: str | Path) -> Pair:
    """Images (N, 28, 28) and labels of one .amat file."""
    path = Path(path)
    try:
        with path.open(encoding="ascii") as file, warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="loadtxt: input contained no data")
            table = np.loadtxt(file, dtype=np.float32, comments=None, ndmin=2)
    except FileNotFoundError:
        raise DatasetError(f"there is no file {path}.") from None
    except ValueError as error:
        raise DatasetError(f"{path} is not a table of numbers: {str(error).rstrip('.')}.") from error
    columns = _SIDE * _SIDE + 1
    if not table.size or table.shape[1] != columns:
        raise DatasetError(f"{path} must have rows of {columns} numbers (784 pixels and a label), got shape {table.shape}.")
    pixels, labels = table[:, :-1], table[:, -1]
    in_range = ((pixels >= 0) & (pixels <= 1)).all(1)  # false for not-a-number
    if not in_range.all():
        raise DatasetError(f"{path} has a pixel outside [0, 1] in row {np.argmin(in_range) + 1}.")
    is_class = np.isin(labels, np.arange(_CLASSES))
    if not is_class.all():
        row = np.argmin(is_class)
        raise DatasetError(f"{path} has the label {labels[row]:g} in row {row + 1}; labels are 0 to 9.")
    images = np.ascontiguousarray(pixels.reshape(-1, _SIDE, _SIDE).transpose(0, 2, 1))
    return images, labels.astype(np.int64)


def montreal_rotated_mnist(root: str | Path | None = None) -> Dataset:
    """The published set (12,000 + 50,000), from the two .amat files in ``root`` (else ORBITGP_DATA, else the user's cache)."""
    folder = data_folder(root)
    for name in _FILES:
        if not (folder / name).is_file():
            raise DatasetError(f"{name} is not in {folder}: put it there, or use rotated_mnist() for a generated set.")
    train, test = (read_amat(folder / name) for name in _FILES)
    return Dataset(*train, *test, name="rotated MNIST (Montreal)", source="the .amat files")
