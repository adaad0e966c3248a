"""The deformations of infiniMNIST, which the paper learned: an orbit of one's own.

The construction is that of Loosli, Canu and Bottou (2007; Simard et al. 2000). A small displacement d changes a picture
by d . grad x. The construction adds that to the picture instead of moving its points:

    x_a = x + f_x t_x + f_y t_y + beta |t|,     t = grad (G_blur * x)

with the smooth random fields f of ``LocalDeformation``. At an edge, beta |t| moves the brighter side outwards. This is
the first order of ``LocalDeformation`` followed by a change of thickness. For displacements that are small against a
stroke it is the same. Larger displacements do not move strokes but paint halos around them. It is not in the package,
because deformations that move points have fewer errors and more evidence (``python -m experiments exact-evidence``).
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from orbitgp.orbits import Description, LocalDeformation
from orbitgp.orbits.images.warps import ImageOrbit
from orbitgp.orbits.ranges import LENGTH, PIXELS, Given, Number, Range
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.saving import register


@register
class TangentDeformation(ImageOrbit):
    """x_a = x + f_x t_x + f_y t_y + beta |t| with beta uniform in a learned range.

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
        self.warp = LocalDeformation(amplitude, smoothness, set(frozen) - {"thickness"}, finest, "zero")
        learn = "thickness" not in frozen
        self.thickness = None if thickness is None else Range(thickness, LENGTH, "thickness", learn)

    def draws_for(self, features: torch.Size) -> int:
        return self.warp.draws_for(features) + int(self.thickness is not None)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), (height, width) = u.shape, x.shape[-2:]
        images = x.reshape(rows, 1, -1, height * width)  # (N, 1, C, H*W)
        tx, ty = (t.reshape(images.shape) for t in tangents(x, self.blur))
        lead = int(self.thickness is not None)
        field = self.warp.field.coefficients(u[..., lead:], (height, width)) @ self.warp.basis((height, width), u)
        fx, fy = field[:, :, :, None].unbind(2)
        xa = images + fx * tx + fy * ty
        if self.thickness is not None:
            # In flat regions t is zero; the tiny constant keeps the gradient of the square root finite there.
            length = (tx**2 + ty**2 + torch.finfo(x.dtype).tiny).sqrt()
            xa = xa + (PIXELS * self.thickness(u[..., :1]))[..., None] * length
        return xa.reshape(rows, samples, *x.shape[1:])

    def describe(self) -> Description:
        ranges = {name: interval.quantity() for name, interval in self.named_ranges().items()}
        return Description("TangentDeformation", {**self.warp.describe().quantities, **ranges})

    def saved_arguments(self) -> dict[str, Any]:
        return {"thickness": None, **super().saved_arguments(), **self.warp.field.saved_arguments()}


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
