"""The thickness of strokes: edges that move outwards or inwards."""

from __future__ import annotations

from math import ceil

import torch
import torch.nn.functional as F

from orbitgp.orbits.images.warps import ImageOrbit
from orbitgp.orbits.ranges import LENGTH, PIXELS, Given, Range
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class Thickness(ImageOrbit):
    """Bright strokes whose edges move outwards by pixels uniform in a learned range; negative ones thin them.

    ``thickness`` is a half-width or a (min, max) pair, in pixels. Thinning by over half its width removes a stroke.

    Each image is dilated and eroded by one pixel, two pixels and so on, once. A sample interpolates linearly between
    the two that are nearest to its drawn thickness. This stays within the brightness range of the image and never
    paints halos. It is exact at zero and differentiable in the range.

        >>> Thickness(0.2).describe()
        Thickness
          thickness  ±0.20 px
    """

    def __init__(self, thickness: Given = 0.3, learn: bool = True) -> None:
        super().__init__()
        self.thickness = Range(thickness, LENGTH, "thickness", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        amount = PIXELS * self.thickness(u)  # (N, S, 1)
        # As many levels as the widest draw can need, so that the range never saturates.
        reach = 1 + max(ceil(PIXELS * abs(end)) for end in self.thickness.ends())
        levels = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
        weights = (1 - (levels - amount).abs()).clamp(min=0)
        images = torch.stack([*reversed(eroded(x, reach)), x, *dilated(x, reach)], dim=1)
        return (weights @ images.flatten(2)).reshape(*u.shape[:2], *x.shape[1:])


def dilated(x: Inputs, reach: int) -> list[Inputs]:
    """Brightest values within 1, 2, … pixels. Crosses and squares in turn make octagons, which approximate discs."""
    height, width = x.shape[-2:]
    images = x.reshape(x.shape[0], -1, height, width)
    result = []
    for step in range(reach):
        padded = F.pad(images, (1, 1, 1, 1))  # outside the image is zero
        if step % 2:
            images = F.max_pool2d(padded, 3, stride=1)
        else:
            row = F.max_pool2d(padded[..., 1:-1, :], (1, 3), stride=1)
            column = F.max_pool2d(padded[..., 1:-1], (3, 1), stride=1)
            images = torch.maximum(row, column)
        result.append(images.reshape(x.shape))
    return result


def eroded(x: Inputs, reach: int) -> list[Inputs]:
    """Darkest values within 1, 2, … pixels."""
    return [-image for image in dilated(-x, reach)]
