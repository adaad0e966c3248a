"""The data of an estimator: as scikit-learn checks them, in memory, on disk, or shared by several processes.

Images become (N, H, W) or (N, C, H, W), or are refused in a sentence. Data frames with words, dates and gaps become
numbers (:mod:`orbitgp.datasets.columns`). Memory maps, and arrays in chunks (HDF5, Zarr, Dask), stay on disk: they are
read a batch at a time, in their own small numbers, and become floats on the device. What is small enough is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length, validate_data
from torch import Tensor

from orbitgp.datasets.columns import Columns, column_scales, columns_of, table_of
from orbitgp.estimators.validation import check_distances, check_same_everywhere, image_shape, per_row, training_options
from orbitgp.inference import processes
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs, SharedRows, StoredRows
from orbitgp.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from orbitgp.orbits import Orbit, SignalOrbit
from orbitgp.orbits.description import listed
from orbitgp.orbits.images.warps import Warp, WarpProduct, border_level, border_of, set_border
from orbitgp.orbits.parse import make_orbit
from orbitgp.planning.options import TrainingOptions

if TYPE_CHECKING:
    from pandas import DataFrame


LOADED_BYTES = 2**28  # arrays on disk up to this size, as single-precision numbers, are loaded


def parts(X: Any) -> Iterator[Any]:
    """The inputs as they are, or a part after the other where they are on disk."""
    on_disk = stored(X)
    if on_disk is None:
        yield X
        return
    rows = on_disk.shape[0]
    step = max(1, 2**26 // prod(on_disk.shape[1:]))  # 256 MB of single-precision numbers
    for start in range(0, rows, step):
        yield on_disk.read(np.arange(start, min(rows, start + step)))


class Stored(NamedTuple):
    """An array on disk: its shape, and how to read some of its rows."""

    shape: tuple[int, ...]
    read: Callable[[np.ndarray], np.ndarray]

    def loaded(self) -> np.ndarray:
        """All rows."""
        return self.read(np.arange(self.shape[0]))


def stored(X: Any) -> Stored | None:
    """These inputs as an array on disk, None if they are something else."""
    in_chunks = hasattr(X, "chunks") and hasattr(X, "shape") and not hasattr(X, "columns")  # a data frame has columns
    if not (in_chunks or isinstance(X, np.memmap)):
        return None
    take = getattr(X, "oindex", X)
    return Stored(tuple(X.shape), lambda rows: np.asarray(take[rows]))


class ChecksData(BaseEstimator):
    """From what the user brings to tensors: the data of ``fit``, and new inputs of the same shape."""

    image_shape: tuple[int, ...] | None
    orbit: Orbit | str | None
    training: TrainingOptions | None
    model_: InvariantGP | ExactGP

    _y_checks = MappingProxyType({"multi_output": False, "y_numeric": False})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _training_data(self, X: Any, y: Any, device: torch.device) -> tuple[AllInputs, np.ndarray]:
        """Inputs on the device, and targets; of all processes, if several share them."""
        x, targets = processes.run_on_all(lambda: self._own_data(X, y, device))
        if processes.count() == 1:
            return x, targets
        check_same_everywhere(self, self.input_shape_)
        return SharedRows(x), np.concatenate(processes.all_gather(targets))

    def _own_data(self, X: Any, y: Any, device: torch.device) -> tuple[AllInputs, np.ndarray]:
        """The data of this process."""
        on_disk = stored(X)
        if on_disk is not None and 4 * prod(on_disk.shape) > LOADED_BYTES:
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
        X = self._learn_columns(X)
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

    def _learn_columns(self, X: Any) -> Any:
        """A data frame with words, dates or gaps as numbers in standard units; whatever else as it is."""
        self.columns_: Columns | None = None
        frame = table_of(X) if self.image_shape is None else None
        if frame is None:
            return X
        columns = columns_of(frame)
        orbit = make_orbit(self.orbit, columns=columns.features)
        if any(isinstance(part, SignalOrbit) for part in orbit.modules()) and frame.isna().any(axis=None):
            raise ValueError("signals have gaps: close them along time, X.interpolate(axis=1, limit_direction='both').")
        x = np.stack(list(columns.inputs(frame, []).values()), axis=1)
        self.columns_ = replace(columns, scales=column_scales(x, columns.features, [orbit]))
        return self._numbers(frame)

    def _numbers(self, frame: DataFrame) -> DataFrame:
        """The rows of this table as inputs; a warning says what is put for gaps and for new words."""
        assert self.columns_ is not None
        if missing := [name for name in self.columns_.columns or () if name not in frame]:
            some = f"column{'s' * (len(missing) > 1)} {listed([repr(name) for name in missing])}"
            raise ValueError(f"X has no {some}, which the model was fitted to.")
        notes: list[str] = []
        inputs = self.columns_.inputs(frame, notes)
        if notes:
            warnings.warn("\n".join(notes))
        x = self.columns_.scaled(np.stack(list(inputs.values()), axis=1))
        return type(frame)(x, columns=list(inputs))

    def _new_inputs(self, X: Any) -> np.ndarray:
        """Flat inputs, checked against those of ``fit``."""
        name = str(self.model_.dtype).removeprefix("torch.")
        if getattr(self, "columns_", None) is not None and (frame := table_of(X, always=True)) is not None:
            X = self._numbers(frame)
            X = X if hasattr(self, "feature_names_in_") else X.to_numpy()
        X, _ = self._flat(X, self.input_shape_, name)
        array: np.ndarray = validate_data(self, X, reset=False, dtype=name)
        check_distances(array)
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


def known_noise(
    likelihood: Likelihood, x: AllInputs, alpha: Any, sample_weight: Any, scale: Float[np.ndarray, " outputs"]
) -> Float[Tensor, "rows known"]:
    """What is known of the noise of each row: its weight, its variance for normalised targets, and features.

    Nothing, where all rows are alike.
    """
    varies = isinstance(likelihood, HeteroscedasticGaussian)
    if sample_weight is None and np.ndim(alpha) == 0 and alpha == 0 and not varies:
        return torch.empty(len(x), 0, dtype=torch.float64)
    if not isinstance(likelihood, Gaussian):
        other = type(likelihood).__name__
        raise ValueError(f"alpha and sample_weight are of a Gaussian noise, and {other} has another: leave them out.")
    if np.ptp(scale) > 0 and np.any(alpha):
        raise ValueError("alpha is in the units of one output: fit outputs one by one, or with normalize_y=False.")
    given = {"sample_weight": 1.0 if sample_weight is None else sample_weight, "alpha": alpha}
    own = len(x.local) if isinstance(x, SharedRows) else len(x)
    columns = processes.run_on_all(lambda: np.stack([per_row(name, value, own) for name, value in given.items()], 1))
    known = torch.tensor(np.concatenate(processes.all_gather(columns)) / [1.0, scale[0] ** 2])
    if not isinstance(likelihood, HeteroscedasticGaussian):
        return known
    if not isinstance(x, Tensor):
        raise ValueError("noise that depends on the inputs needs all data in memory: take likelihood='gaussian'.")
    likelihood.prepare(x)
    return torch.cat([known, likelihood.features(x)], 1)


def _rank(X: Any) -> int:
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim


def channels_first(X: Any) -> Any:
    """Images (N, H, W, C), as Pillow and matplotlib have them, as (N, C, H, W); whatever else is left as it is."""
    X = X if hasattr(X, "shape") else np.asarray(X)
    shape = tuple(X.shape)
    if len(shape) != 4 or shape[-1] not in (1, 3, 4) or shape[1] in (1, 3, 4):
        return X
    if shape[-1] == 4:
        raise ValueError(
            f"X has shape {shape}, images with an alpha channel: blend them with their background first, or leave out "
            "the last channel where all is opaque, X[..., :3]."
        )
    return np.moveaxis(np.asarray(X), -1, 1)


def check_images(x: Shaped[np.ndarray, "rows *features"], *orbits: Orbit) -> None:
    """Refuse images that show nothing. Warn of values that pixels do not have, and where an orbit brings in zeros that
    are not the background. Where an orbit leaves the border open, it becomes that of these images."""
    if (np.ptp(x.reshape(len(x), -1), axis=1) == 0).all():
        raise ValueError("every image in X is of one colour all over: there is nothing to learn from.")
    low, high = float(x.min()), float(x.max())
    if max(-low, high) > 255:
        warnings.warn(
            f"the pixels of X go from {low:.3g} to {high:.3g}, and those of images from 0 to 1 or to 255: bring them "
            "to 0 to 1, as by X / X.max(), in which units orbits of brightness and noise start."
        )
    warps = [part for orbit in orbits for part in orbit.modules() if isinstance(part, Warp)]
    if not warps:
        return
    border = border_of(x)
    for orbit in orbits:
        set_border(orbit, border)
    zeros = [type(part).__name__ for part in warps if part.outside == "zero" and not isinstance(part, WarpProduct)]
    if zeros and (level := border_level(x)) is not None:
        warnings.warn(
            f"the border of these images is about {level:.3g}, and what lies outside an image counts as 0 for "
            f"{listed(zeros)}: take border='edge' or border='reflect'."
        )
