"""The data of an estimator: as scikit-learn checks them, in memory, on disk, or shared by several processes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, validate_data
from torch import Tensor

from orbitgp.estimators.images import channels_first
from orbitgp.estimators.stored import Stored, stored
from orbitgp.estimators.validation import check_same_everywhere, image_shape, training_options
from orbitgp.inference import processes
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource, SharedRows, StoredRows
from orbitgp.planning.options import TrainingOptions

PREDICT_BYTES = 2**28  # of inputs on disk that are predicted at once

Inputs = Float[Tensor, "rows *features"] | RowSource


class ChecksData(BaseEstimator):
    """From what the user brings to tensors: the data of ``fit``, and new inputs of the same shape."""

    image_shape: tuple[int, ...] | None
    training: TrainingOptions | None
    model_: InvariantGP | ExactGP

    _y_checks = MappingProxyType({"multi_output": False, "y_numeric": False})

    def _training_data(self, X: Any, y: Any, device: torch.device) -> tuple[Inputs, np.ndarray]:
        """Inputs on the device, and targets; of all processes, if several share them."""
        x, targets = processes.run_on_all(lambda: self._own_data(X, y, device))
        if processes.count() == 1:
            return x, targets
        check_same_everywhere(self, self.input_shape_)
        return SharedRows(x), np.concatenate(processes.all_gather(targets))

    def _own_data(self, X: Any, y: Any, device: torch.device) -> tuple[Inputs, np.ndarray]:
        """The data of this process."""
        on_disk = stored(X)
        if on_disk is not None and not on_disk.is_small:
            return self._stored_data(on_disk, y, device)
        array, targets = self._checked_data(X if on_disk is None else on_disk.loaded(), y)
        return self._tensor(array, device), targets

    def _stored_data(self, X: Stored, y: Any, device: torch.device) -> tuple[StoredRows, np.ndarray]:
        """Inputs that stay on disk. Their first rows are checked now, the others when they are read."""
        head, _ = self._checked_data(X.read(np.arange(min(2, X.shape[0]))), None, targeted=False)
        targets = check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=self)
        check_consistent_length(np.empty((X.shape[0], 0)), targets)
        shape, dtype = (X.shape[0], *self.input_shape_), torch.from_numpy(head).dtype
        return StoredRows(X.read, shape, dtype, device), targets

    def _checked_data(self, X: Any, y: Any, targeted: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Flat inputs and targets, as scikit-learn checks them; sets ``input_shape_`` and ``n_features_in_``."""
        if issparse(y):
            raise TypeError("y must be a dense array, got a sparse one.")
        shape = image_shape(self.image_shape)
        images = shape is not None or _rank(X) > 2
        # Tables are small and their columns may be far from zero; images are many and between 0 and 1.
        dtype = training_options(self.training).dtype
        name = dtype if dtype != "auto" else "float32" if images else "float64"
        X, shape = self._flat(X, shape, name)
        if not targeted:
            array, targets = validate_data(self, X, dtype=name), np.empty(0)
        else:
            array, targets = validate_data(self, X, y, dtype=name, **self._y_checks)
        if shape is not None and prod(shape) != array.shape[1]:
            raise ValueError(f"image_shape={shape} holds {prod(shape)} pixels, but X has {array.shape[1]} features.")
        self.input_shape_ = (array.shape[1],) if shape is None else shape
        return array, targets

    def _new_inputs(self, X: Any) -> np.ndarray:
        """Flat inputs, checked against those of ``fit``."""
        name = str(self.model_.dtype).removeprefix("torch.")
        X, _ = self._flat(X, self.input_shape_, name)
        array: np.ndarray = validate_data(self, X, reset=False, dtype=name)
        return array

    def _tensor(self, array: np.ndarray, device: torch.device) -> Float[Tensor, "rows *features"]:
        # A copy of our own: the user's array may be read-only, or a view that runs backwards.
        return torch.tensor(np.ascontiguousarray(array), device=device).reshape(len(array), *self.input_shape_)

    def _flat(self, X: Any, shape: tuple[int, ...] | None, dtype: str) -> tuple[Any, tuple[int, ...] | None]:
        """Images as rows, with their shape; whatever else is left as it is."""
        rank = _rank(X)
        if rank <= 2:
            return X, shape
        X = channels_first(X)
        X = check_array(X, dtype=dtype, allow_nd=True, input_name="X", estimator=self)
        if rank > 4 or (shape is not None and X.shape[1:] != shape):
            expected = "(N, H, W) or (N, C, H, W)" if shape is None else f"(N, {', '.join(map(str, shape))})"
            raise ValueError(f"X must have shape {expected}, got {X.shape}.")
        return X.reshape(len(X), -1), X.shape[1:]


def parts(X: Any) -> Iterator[Any]:
    """The inputs as they are, or a part after the other where they are on disk."""
    on_disk = stored(X)
    if on_disk is None:
        yield X
        return
    rows = on_disk.shape[0]
    step = max(1, PREDICT_BYTES // (4 * prod(on_disk.shape[1:])))
    for start in range(0, rows, step):
        yield on_disk.read(np.arange(start, min(rows, start + step)))


def _rank(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
