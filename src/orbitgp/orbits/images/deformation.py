"""Local deformations: every point of the picture moves a little, and neighbours move alike."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.description import Description
from orbitgp.orbits.images.displacement_field import Lengths, SmoothField
from orbitgp.orbits.images.points import Grid, Points
from orbitgp.orbits.images.warps import Warp
from orbitgp.orbits.ranges import Number


class LocalDeformation(Warp):
    """x_a(p) = x(p + d(p)) for a smooth Gaussian random field d of displacements.

    Args:
        amplitude: root mean square length of the displacement, in pixels; with ``per_axis``, along each axis.
        smoothness: the length, in pixels, over which displacements change: their correlation is exp(-r^2 / (2 smoothness^2)).
            Several lengths make a sum of fields, each with an amplitude of its own (a list, or one that all start with).
        per_axis: displacements along x and along y have an amplitude and a smoothness each.
        frozen: which of ``"amplitude"`` and ``"smoothness"`` are not learned.
        finest: the smallest smoothness, in pixels, that the field can have. The number of base draws grows with
            (image size / finest)^2: 50 for the default on 28 x 28. By default 5/6 of the smallest initial smoothness, or that
            itself if it is frozen. Below it, and above about twice the initial smoothness, the field still has its amplitude,
            but its correlation is no longer the one above.

    Write it last in a composition, ``Affine() * LocalDeformation()``. There the field is needed only at the pixels, which costs
    one matrix product. In any other place it is evaluated, exactly, at the points where the later warps look, which takes many
    times longer.
    """

    def __init__(
        self,
        amplitude: Lengths = 1.0,
        smoothness: Lengths = 6.0,
        per_axis: bool = False,
        frozen: Collection[str] = (),
        finest: Number | None = None,
    ) -> None:
        super().__init__()
        self.field = SmoothField(amplitude, smoothness, per_axis, frozen, finest)

    def draws_for(self, features: torch.Size) -> int:
        self.check(features)
        height, width = features[-2:]
        return self.field.draws_for((height, width))

    def points(self, p: Points, u: Float[Tensor, "rows samples 1 1 dim"]) -> Points:
        cx, cy = self.field.coefficients(u[:, :, 0, 0], p.size)
        if isinstance(p, Grid):
            return p.displaced(cx, cy, self.field.basis(p.size, u))
        dx, dy = self.field.at(p.x, p.y, cx, cy, p.size)
        return p.at(p.x + dx, p.y + dy)

    def describe(self) -> Description:
        return Description("LocalDeformation", self.field.quantities())

    def saved_arguments(self) -> dict[str, Any]:
        return self.field.saved_arguments()
