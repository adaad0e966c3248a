"""Images as people have them, brought to (N, H, W) or (N, C, H, W), or refused in a sentence."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Shaped

from orbitgp.orbits import Orbit
from orbitgp.orbits.images.warps import Warp, border_level

_CHANNELS = (1, 3, 4)
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
