"""Strokes that move and grow: the tangent-vector construction of infiniMNIST, and thickness.

The paper used the construction of Loosli, Canu and Bottou (2007; Simard et al. 2000). A small displacement d changes a picture
by d . grad x. The construction adds that to the picture instead of moving its points:

    x_a = x + f_x t_x + f_y t_y + beta |t|,     t = grad (G_blur * x)

with the smooth random fields f of ``LocalDeformation``. At an edge, beta |t| moves the brighter side outwards. This is the
first order of ``LocalDeformation`` followed by a change of thickness. For displacements that are small against a stroke it is
the same, and cheaper. Larger displacements do not move strokes but paint halos around them.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, inf

import torch
import torch.nn.functional as F
from torch import Tensor

from orbitgp.orbits.images.deformation import Deformation, SmoothField
from orbitgp.orbits.images.warps import ImageOrbit
from orbitgp.orbits.ranges import LENGTH, PIXELS, Given, Number, Range
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class TangentDeformation(Deformation):
    """x_a = x + f_x t_x + f_y t_y + beta |t| with beta uniform in a learned range.

        >>> TangentDeformation().describe()
        TangentDeformation
          amplitude   1.0 px
          smoothness  6.0 px
          thickness   ±0.30 px

    Args:
        amplitude, smoothness, finest: of the fields f, as for ``LocalDeformation``.
        thickness: pixels by which edges move outwards: a half-width, a (min, max) pair, or None for no such term.
        blur: width, in pixels, of the Gaussian under the derivatives. Fixed.
        frozen: which of ``"amplitude"``, ``"smoothness"`` and ``"thickness"`` are not learned.
    """

    def __init__(
        self,
        amplitude: Number = 1.0,
        smoothness: Number = 6.0,
        thickness: Given | None = 0.3,
        blur: Number = 0.9,
        frozen: Collection[str] = (),
        finest: Number | None = None,
    ) -> None:
        super().__init__()
        if not 0 < blur < inf:
            raise ValueError(f"blur must be a positive width in pixels, got {blur}.")
        self.blur = float(blur)
        self.field = SmoothField(amplitude, smoothness, set(frozen) - {"thickness"}, finest)
        learn = "thickness" not in frozen
        self.thickness = None if thickness is None else Range(thickness, LENGTH, "thickness", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), (height, width) = u.shape, x.shape[-2:]
        images = x.reshape(rows, 1, -1, height * width)  # (N, 1, C, H*W)
        tx, ty = (t.reshape(images.shape) for t in tangents(x, self.blur))
        lead = int(self.thickness is not None)
        field = self.field.coefficients(u[..., lead:], (height, width)) @ self.basis((height, width), u)
        fx, fy = field[:, :, :, None].unbind(2)
        xa = images + fx * tx + fy * ty
        if self.thickness is not None:
            # In flat regions t is zero; the tiny constant keeps the gradient of the square root finite there.
            length = (tx**2 + ty**2 + torch.finfo(x.dtype).tiny).sqrt()
            xa = xa + (PIXELS * self.thickness(u[..., :1]))[..., None] * length
        return xa.reshape(rows, samples, *x.shape[1:])


def tangents(x: Inputs, blur: float) -> tuple[Inputs, Inputs]:
    """Derivatives along x and y of the image under a Gaussian blur; outside the image is zero."""
    height, width = x.shape[-2:]
    images = x.reshape(-1, 1, height, width)
    reach = ceil(4 * blur)
    t = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    bell = torch.exp(-0.5 * (t / blur) ** 2)
    bell = bell / bell.sum()
    slope = t * bell / (t * t * bell).sum()  # exact for a linear ramp; conv2d correlates, so no sign

    def separable(row: Tensor, column: Tensor) -> Tensor:
        blurred = F.conv2d(images, row.view(1, 1, 1, -1), padding=(0, reach))
        return F.conv2d(blurred, column.view(1, 1, -1, 1), padding=(reach, 0)).reshape(x.shape)

    return separable(slope, bell), separable(bell, slope)


class Thickness(ImageOrbit):
    """Bright strokes whose edges move outwards by a number of pixels uniform in a learned range; negative ones thin them.

    ``thickness`` is a half-width or a (min, max) pair, in pixels. Thinning by more than half the width of a stroke removes it.

    Each image is dilated and eroded by one pixel, two pixels and so on, once. A sample interpolates linearly between the two
    that are nearest to its drawn thickness. Unlike the tangent term beta |t| this stays within the brightness range of the
    image and never paints halos. It is exact at zero and differentiable in the range.

        >>> Thickness(0.2).describe()
        Thickness
          thickness  ±0.20 px
    """

    num_draws = 1

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
    images = x.reshape(len(x), -1, height, width)
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
