"""Images as people have them, brought to (N, H, W) or (N, C, H, W), or refused in a sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.orbits import Orbit
from orbitgp.orbits.images.warps import Warp

_CHANNELS = (1, 3, 4)
_BRIGHT = 0.6  # of the brightest pixel: a border above is no background of 0
_MOST = 0.4  # a side is bright if all but so many of its pixels are
_LEVEL = 0.05  # of the range of pixels: how far a uniform border may be from 0
_BYTE = 255.0  # the most that pixels have, as bytes or as numbers between 0 and 1


def channels_first(X: Any) -> Any:
    """Images (N, H, W, C), as Pillow and matplotlib have them, as (N, C, H, W); whatever else is left as it is."""
    if not hasattr(X, "ndim"):
        X = np.asarray(X)
    if X.ndim != 4 or X.shape[-1] not in _CHANNELS or X.shape[1] in _CHANNELS:
        return X
    if X.shape[-1] == 4:
        raise ValueError(
            f"X has shape {tuple(X.shape)}, images with an alpha channel: blend them with their background first, or leave out "
            "the last channel where all is opaque, X[..., :3]."
        )
    return np.moveaxis(np.asarray(X), -1, 1)


def check_images(x: Shaped[np.ndarray, "rows *features"], *orbits: Orbit) -> None:
    """Refuse images that show nothing. Warn of values that pixels do not have, and where an orbit brings in zeros that are not
    the background."""
    if (np.ptp(x.reshape(len(x), -1), axis=1) == 0).all():
        raise ValueError("every image in X is of one colour all over: there is nothing to learn from.")
    low, high = float(x.min()), float(x.max())
    if max(-low, high) > _BYTE:
        warnings.warn(
            f"the pixels of X go from {low:.3g} to {high:.3g}, and those of images from 0 to 1 or to 255: bring them to "
            "0 to 1, as by X / X.max(), in which units orbits of brightness and noise start."
        )
    warps = any(isinstance(part, Warp) for orbit in orbits for part in orbit.modules())
    if warps and (level := border_level(x)) is not None:
        warnings.warn(
            f"the border of these images is about {level:.3g}, and what lies outside an image counts as 0: bring the "
            "background to 0, as by 1 - X for dark ink on white, and do not standardise pixels."
        )


def border_level(x: Shaped[np.ndarray, "rows *features"]) -> float | None:
    """The value of the pixels at the border where that is not 0: bright, or uniform and away from 0. None where it is 0.

    Two opposite sides are enough to be bright: the other two may be bars that keep the aspect ratio of a picture.
    """
    sides = [side.ravel() for side in (x[..., 0, :], x[..., -1, :], x[..., :, 0], x[..., :, -1])]
    frame = np.concatenate(sides)
    level, top, span = float(np.median(frame)), float(x.max()), float(np.ptp(x))
    lows = [float(np.quantile(side, _MOST)) for side in sides]
    bright = max(level, min(lows[:2]), min(lows[2:]))
    if bright > _BRIGHT * top:
        return bright
    uniform = float(np.mean(np.abs(frame - level) <= 0.01 * span)) > 0.5
    return level if uniform and abs(level) > _LEVEL * span else None
