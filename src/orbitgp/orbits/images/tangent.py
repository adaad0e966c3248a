"""The tangent-vector construction of infiniMNIST (Loosli, Canu and Bottou 2007; Simard et al. 2000), which the paper used.

A small displacement d changes a picture by d . grad x. The construction adds that to the picture instead of moving its points:

    x_a = x + f_x t_x + f_y t_y + beta |t|,     t = grad (G_blur * x)

with the smooth random fields f of ``LocalDeformation`` and a thickness term: at an edge, beta |t| moves the brighter side
outwards. This is the first order of ``LocalDeformation`` followed by a change of thickness. For displacements that are small
against a stroke it is the same, and cheaper. Larger displacements do not move strokes but paint halos beside them.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from orbitgp.orbits.description import Description
from orbitgp.orbits.images.base import ImageOrbit
from orbitgp.orbits.images.deformation import Lengths, SmoothField
from orbitgp.orbits.ranges import LENGTH, PIXELS, Ends, Number, Range
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class TangentDeformation(ImageOrbit):
    """x_a = x + f_x t_x + f_y t_y + beta |t| with beta uniform in a learned range.

    Args:
        amplitude, smoothness, per_axis, finest: of the fields f, as for ``LocalDeformation``; one pixel of amplitude is one
            pixel of displacement.
        thickness: pixels by which edges move outwards: a half-width, a (min, max) pair, or None for no such term.
        blur: width, in pixels, of the Gaussian under the derivatives. Fixed.
        frozen: which of ``"amplitude"``, ``"smoothness"`` and ``"thickness"`` are not learned.
    """

    def __init__(
        self,
        amplitude: Lengths = 1.0,
        smoothness: Lengths = 6.0,
        thickness: Number | Ends | None = 0.3,
        per_axis: bool = False,
        blur: Number = 0.9,
        frozen: Collection[str] = (),
        finest: Number | None = None,
    ) -> None:
        super().__init__()
        if not 0 < blur < inf:
            raise ValueError(f"blur must be a positive width in pixels, got {blur}.")
        self.blur = float(blur)
        self.field = SmoothField(amplitude, smoothness, per_axis, set(frozen) - {"thickness"}, finest)
        self.thickness = None
        if thickness is not None:
            self.thickness = Range.of(thickness, LENGTH, "thickness", "thickness" not in frozen)

    def draws_for(self, features: torch.Size) -> int:
        self.check(features)
        height, width = features[-2:]
        return self.field.draws_for((height, width)) + (self.thickness is not None)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), (height, width) = u.shape, x.shape[-2:]
        images = x.reshape(rows, 1, -1, height * width)  # (N, 1, C, H*W)
        tx, ty = (t.reshape(images.shape) for t in tangents(x, self.blur))
        lead = int(self.thickness is not None)
        cx, cy = self.field.coefficients(u[..., lead:], (height, width))
        basis = self.field.basis((height, width), u)
        xa = images + (cx @ basis)[:, :, None] * tx + (cy @ basis)[:, :, None] * ty
        if self.thickness is not None:
            # In flat regions t is zero; the tiny constant keeps the gradient of the square root finite there.
            length = (tx**2 + ty**2 + torch.finfo(x.dtype).tiny).sqrt()
            xa = xa + (PIXELS * self.thickness(u[..., :1]))[..., None] * length
        return xa.reshape(rows, samples, *x.shape[1:])

    def describe(self) -> Description:
        quantities = self.field.quantities()
        if self.thickness is not None:
            quantities["thickness"] = self.thickness.quantity()
        return Description("TangentDeformation", quantities)

    def saved_arguments(self) -> dict[str, Any]:
        thickness = None if self.thickness is None else 0.3 if self.thickness.skew is None else self.thickness.same_kind
        return {**self.field.saved_arguments(), "thickness": thickness, "blur": self.blur}


def tangents(x: Inputs, blur: float) -> tuple[Inputs, Inputs]:
    """Derivatives along x and y of the image under a Gaussian blur; outside the image is zero."""
    height, width = x.shape[-2:]
    images = x.reshape(-1, 1, height, width)
    reach = ceil(4 * blur)
    t = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    bell = torch.exp(-0.5 * (t / blur) ** 2)
    bell = bell / bell.sum()
    slope = t * bell
    slope = slope / (t * slope).sum()  # exact for a linear ramp; conv2d correlates, so no sign
    along_x = _separable(images, slope, bell)
    along_y = _separable(images, bell, slope)
    return along_x.reshape(x.shape), along_y.reshape(x.shape)


def _separable(images: Tensor, row: Tensor, column: Tensor) -> Tensor:
    reach = len(row) // 2
    images = F.conv2d(images, row.view(1, 1, 1, -1), padding=(0, reach))
    return F.conv2d(images, column.view(1, 1, -1, 1), padding=(reach, 0))
