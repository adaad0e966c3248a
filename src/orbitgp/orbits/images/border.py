"""The background of images. Warps bring in zeros from outside, which is right where the background is 0."""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped

_BRIGHT = 0.6  # of the brightest pixel: a border above is no background of 0
_MOST = 0.4  # of the pixels of a side: it is bright if no more than these are dark
_LEVEL = 0.05  # of the range of pixels: how far a uniform border may be from 0


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
