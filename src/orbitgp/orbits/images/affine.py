"""Affine warps: rotations, scalings, shears and shifts with learned ranges.

Signs describe what one sees. A positive angle turns the picture counter-clockwise (as ``torch.rot90``). A scale above
one enlarges it. A positive shear moves what is below the centre to the right. Positive shifts move it to the right and
down. The points that a pixel looks at move the other way, so each map below is the inverse of what one sees.

Parameters are learned in radians, logarithms of scales, shears, and tens of pixels, so one learning rate suits all.
"""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from math import degrees, pi, radians
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits import ranges
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.images.warps import Border, Points, Warp, WarpDraws
from orbitgp.orbits.ranges import DEGREES, FACTOR, LENGTH, NUMBER, PIXELS, Given, Number, Range, check_names, drawn


class Rotation(Warp):
    """x rotated about its centre by an angle uniform in [-alpha, alpha], with one learned alpha in [0, 180] degrees.

    At alpha = 180 the orbit is the whole circle, so alpha cannot grow further. The free parameter a is reflected there
    and at zero: alpha = |a| for |a| <= pi. So alpha stays within its range, while the gradient with respect to a has
    size one everywhere and a never gets stuck at either end.

        >>> Rotation(30).describe()
        Rotation
          degrees  ±30°
    """

    num_draws = 1
    reach = ("angle",)
    widest = pi

    def __init__(self, init_degrees: Number = 45.0, learn: bool = True, border: Border | None = None) -> None:
        super().__init__(border)
        if not 0 <= init_degrees <= 180:
            raise ValueError(f"init_degrees must lie between 0 and 180, got {init_degrees}.")
        if learn and init_degrees == 0:
            raise ValueError("init_degrees must not be 0: the gradient of the angle vanishes; start at a few degrees.")
        self.angle = nn.Parameter(torch.tensor(radians(init_degrees)), requires_grad=learn)

    def folded(self) -> Float[Tensor, ""]:
        """The angle alpha in radians, within [0, pi]."""
        return ranges.reflected(self.angle, self.widest).abs()

    def points(self, p: Points, u: WarpDraws) -> Points:
        angle = self.folded() * (2 * u[..., 0] - 1)
        cos, sin = angle.cos(), angle.sin()
        return p.affine(((cos, -sin, 0.0), (sin, cos, 0.0)))

    def describe(self) -> Description:
        return Description("Rotation", {"degrees": Quantity(degrees(self.folded().item()), "°")})


_UNITS = {"angle": DEGREES, "shear": NUMBER}
_UNITS |= dict.fromkeys(("scale", "scale_x", "scale_y"), FACTOR) | dict.fromkeys(("shift_x", "shift_y"), LENGTH)


class _AffineWarp(Warp):
    """x_a(p) = x(D^-1 H^-1 R^-1 (p - t)) with some of the parameters, each drawn from a learned range."""

    def __init__(self, values: dict[str, Given | None], frozen: Collection[str], border: Border | None) -> None:
        super().__init__(border)
        check_names(frozen, type(self).__name__, values)
        kept = {name: value for name, value in values.items() if value is not None}
        if not kept:
            raise ValueError(f"{type(self).__name__} has nothing left: keep at least one of {', '.join(values)}.")
        learned = {name: Range(value, _UNITS[name], name, learn=name not in frozen) for name, value in kept.items()}
        self.ranges = nn.ModuleDict(learned)

    def points(self, p: Points, u: WarpDraws) -> Points:
        v = dict(zip(self.ranges, drawn(self.named_ranges().values(), u), strict=True))
        cos, sin = (v["angle"].cos(), v["angle"].sin()) if "angle" in v else (1.0, 0.0)
        both, fx, fy = ((-v[name]).exp() if name in v else 1.0 for name in ("scale", "scale_x", "scale_y"))
        fx, fy, shear = both * fx, both * fy, v.get("shear", 0.0)
        x, y = PIXELS * v.get("shift_x", 0.0), PIXELS * v.get("shift_y", 0.0)
        # D^-1 H^-1 R^-1, and the same of -t.
        a, b = fx * (cos - shear * sin), fx * (-sin - shear * cos)
        c, d = fy * sin, fy * cos
        return p.affine(((a, b, -(a * x + b * y)), (c, d, -(c * x + d * y))))

    def simpler(self) -> list[list[nn.Parameter]]:
        """Rotations, scalings with shears, and shifts, each alone."""
        families: dict[str, list[nn.Parameter]] = {}
        for interval in self.named_ranges().values():
            if interval.half_width.requires_grad:
                families.setdefault(interval.unit.sign or FACTOR.sign, []).append(interval.half_width)
        return list(families.values()) if len(families) > 1 else []

    def saved_arguments(self) -> dict[str, Any]:
        left_out = [name for name in signature(type(self)).parameters if name in _UNITS and name not in self.ranges]
        return {**dict.fromkeys(left_out), **super().saved_arguments()}


class Affine(_AffineWarp):
    """Six parameters, each uniform in a learned range: ``Affine = Scale * Shear * Rotation * Translation``.

    The picture is scaled along its axes, then sheared, then rotated, then shifted:
    x_a(p) = x(D^-1 H^-1 R^-1 (p - t)) with D = diag(scale_x, scale_y), H = [[1, shear], [0, 1]].

    Each parameter is a half-width, a (min, max) pair, or None to leave it out; then it does nothing and costs no draw.
    A learned range contains the value that changes nothing. It stays symmetric unless the pair is not.

    Args:
        angle: degrees. A range does not go beyond the whole turn, 180 to either side.
        scale_x, scale_y: factors; 1.16 stands for 1/1.16 to 1.16. Uniform in the logarithm.
        shear: pixels to the right per pixel down.
        shift_x, shift_y: pixels.
        frozen: names of the parameters that keep their range.
        border: what lies outside the image: ``zero``, ``edge`` or ``reflect``. By default the data say.

    ``describe()`` uses the units of the constructor: ``Affine(**orbit.describe())`` is the same orbit.

        >>> Affine(angle=15, shear=None, scale_y=None, shift_y=None).describe()
        Affine
          angle    ±15°
          scale_x  ×0.86 … ×1.16
          shift_x  ±1.0 px
    """

    def __init__(
        self,
        angle: Given | None = 8.6,
        scale_x: Given | None = 1.16,
        scale_y: Given | None = 1.16,
        shear: Given | None = 0.15,
        shift_x: Given | None = 1.0,
        shift_y: Given | None = 1.0,
        frozen: Collection[str] = (),
        border: Border | None = None,
    ) -> None:
        values = (angle, scale_x, scale_y, shear, shift_x, shift_y)
        names = ("angle", "scale_x", "scale_y", "shear", "shift_x", "shift_y")
        super().__init__(dict(zip(names, values, strict=True)), frozen, border)


class Translation(_AffineWarp):
    """Shifted by pixels uniform in learned ranges; a half-width, a (min, max) pair or None for either axis.

    >>> Translation(2.0).describe()
    Translation
      shift_x  ±2.0 px
      shift_y  ±1.0 px
    """

    def __init__(
        self,
        shift_x: Given | None = 1.0,
        shift_y: Given | None = 1.0,
        frozen: Collection[str] = (),
        border: Border | None = None,
    ) -> None:
        super().__init__({"shift_x": shift_x, "shift_y": shift_y}, frozen, border)


class Scale(_AffineWarp):
    """Scaled about the centre by one factor for both axes, uniform in its logarithm in a learned range.

    >>> Scale(1.2).describe()
    Scale
      scale  ×0.83 … ×1.20
    """

    def __init__(self, scale: Given = 1.16, frozen: Collection[str] = (), border: Border | None = None) -> None:
        super().__init__({"scale": scale}, frozen, border)


class Shear(_AffineWarp):
    """Sheared horizontally (italics): pixels to the right per pixel down, uniform in a learned range.

    >>> Shear(0.1).describe()
    Shear
      shear  ±0.10
    """

    def __init__(self, shear: Given = 0.15, frozen: Collection[str] = (), border: Border | None = None) -> None:
        super().__init__({"shear": shear}, frozen, border)
