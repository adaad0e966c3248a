"""Orbits of colour and of sharpness: what light, camera and stain do to a picture. Brightness and contrast are
:class:`orbitgp.orbits.Brightness` and :class:`orbitgp.orbits.Contrast`; a random crop that is enlarged again is
:class:`orbitgp.orbits.Affine`.

Nothing is clipped, so gradients never vanish, and each leaves the picture exactly as it is at its neutral value.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, inf, log, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.machine import constant
from orbitgp.orbits.images.warps import ImageOrbit
from orbitgp.orbits.ranges import DEGREES, FACTOR, LENGTH, PIXELS, Given, Number, Range, check_names
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.orbits.values import bells, covered

_DARK = 1 / 255  # of white: a power or logarithm of darker pixels counts as that of this value
_FROM_ZERO = LENGTH._replace(from_zero=True)
_DYE = FACTOR._replace(widest=log(10.0))  # beyond, a dye is absent or black, and exponentials of it overflow


class ColourOrbit(ImageOrbit):
    """An orbit of images (3, H, W): red, green and blue."""

    def check(self, features: torch.Size) -> None:
        if len(features) != 3 or features[0] != 3:
            name, shape = type(self).__name__, tuple(features)
            raise ValueError(f"{name} acts on colour images (3, H, W), but the inputs have shape {shape}.")


class Saturation(ColourOrbit):
    """x_a = grey + s (x - grey) with the factor s uniform, in its logarithm, in a learned range.

    ``grey`` is the luma of each pixel, 0.299 red + 0.587 green + 0.114 blue. ``saturation`` is a factor, 1.3 for 1/1.3
    to 1.3, or a (min, max) pair of factors.

        >>> Saturation(1.2).describe()
        Saturation
          saturation  ×0.83 … ×1.20

    It gains evidence where targets depend on which colour there is, not on its strength. A mean over factors near one
    leaves a linear function of the pixels nearly as it is. So where k_g is nearly linear, there is nothing to gain.
    """

    def __init__(self, saturation: Given = 1.3, learn: bool = True) -> None:
        super().__init__()
        self.saturation = Range(saturation, FACTOR, "saturation", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        grey = torch.einsum("c,nchw->nhw", _luma(dtype=x.dtype, device=x.device), x)[:, None]
        return x[:, None] + self.saturation(u)[..., None, None].expm1() * (x - grey)[:, None]


class Hue(ColourOrbit):
    """Colours turned about the axis of greys, by an angle uniform in a learned range; lightness and greys stay.

    ``hue`` is a half-width or a (min, max) pair, in degrees. Red becomes green at 120°.

        >>> Hue(10).describe()
        Hue
          hue  ±10.0°
    """

    def __init__(self, hue: Given = 10.0, learn: bool = True) -> None:
        super().__init__()
        self.hue = Range(hue, DEGREES, "hue", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        """Rodrigues' formula: x + sin(h) k × x + (1 - cos(h)) k × (k × x), with the unit vector k of greys."""
        self.check(x.shape[1:])
        angle = self.hue(u)[..., None, None]
        once = (x.roll(1, 1) - x.roll(2, 1)) / sqrt(3)
        twice = (once.roll(1, 1) - once.roll(2, 1)) / sqrt(3)
        # 1 - cos h as a square: a small angle keeps its digits.
        return x[:, None] + angle.sin() * once[:, None] + 2 * (angle / 2).sin().square() * twice[:, None]


class Gamma(ImageOrbit):
    """x_a = x (x / white)^(g - 1) with log g uniform in a learned range: black and white stay.

    ``gamma`` is a factor, 1.2 for 1/1.2 to 1.2, or a (min, max) pair of exponents. ``white`` is the value of white
    pixels, 1 or 255. Pixels darker than 1/255 of it are scaled as that is, so the slope at black is finite.

        >>> Gamma(1.2).describe()
        Gamma
          gamma  ×0.83 … ×1.20
    """

    def __init__(self, gamma: Given = 1.2, white: Number = 1.0, learn: bool = True) -> None:
        super().__init__()
        self.white = _checked(white)
        self.gamma = Range(gamma, FACTOR, "gamma", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        less_one = self.gamma(u).expm1().reshape(*u.shape[:2], *[1] * (x.ndim - 1))
        return x[:, None] * (less_one * (x / self.white).clamp_min(_DARK).log()[:, None]).exp()


class Blur(ImageOrbit):
    """The picture under a Gaussian whose standard deviation is uniform between zero and a learned width.

    ``width`` is the largest standard deviation in pixels, or a (0, max) pair. The edge goes on outside. Below a third
    of a pixel nothing happens, because the Gaussian then has a single pixel.

        >>> Blur(0.5).describe()
        Blur
          width  0.50 px
    """

    def __init__(self, width: Given = 1.0, learn: bool = True) -> None:
        super().__init__()
        self.width = Range(width, _FROM_ZERO, "width", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        reach = 1 + ceil(5 * PIXELS * max(abs(end) for end in self.width.ends()))
        weights = bells(PIXELS * self.width(u).abs(), reach)
        images = x.reshape(x.shape[0], -1, *x.shape[-2:])
        padded = F.pad(images, (reach,) * 4, mode="replicate")
        across = torch.einsum("nsk,nchwk->nschw", weights, padded.unfold(3, 2 * reach + 1, 1))
        blurred = torch.einsum("nsk,nschwk->nschw", weights, across.unfold(3, 2 * reach + 1, 1))
        return blurred.reshape(*u.shape[:2], *x.shape[1:])


class Stain(ColourOrbit):
    """More or less of each dye in a stained section: haematoxylin, eosin and, where it is given, diaminobenzidine.

    Dyes absorb light in proportion to their amount (Beer and Lambert), so with white = 1

        -log x = sum_i c_i m_i,    x_a = exp(-sum_i f_i c_i m_i) = x exp(-sum_i (f_i - 1) c_i m_i)

    with the colours m_i of the dyes (Ruifrok and Johnston, 2001). Without a third dye, the third colour is orthogonal
    to both, and stays. The logarithms of the factors f are uniform in learned ranges, which end at a tenth and ten.

        >>> Stain().describe()
        Stain
          haematoxylin  ×0.83 … ×1.20
          eosin         ×0.83 … ×1.20

    Args:
        haematoxylin, eosin: a factor, 1.2 for 1/1.2 to 1.2, or a (min, max) pair of factors.
        white: the value of white pixels, 1 or 255.
        frozen: which of ``"haematoxylin"``, ``"eosin"`` and ``"dab"`` are not learned.
        dab: the same of diaminobenzidine, or None where there is none.
    """

    def __init__(
        self,
        haematoxylin: Given = 1.2,
        eosin: Given = 1.2,
        white: Number = 1.0,
        frozen: Collection[str] = (),
        dab: Given | None = None,
    ) -> None:
        super().__init__()
        check_names(frozen, "Stain", ("haematoxylin", "eosin", "dab"))
        self.white, self.frozen = _checked(white), frozen
        for name, factor in (("haematoxylin", haematoxylin), ("eosin", eosin), ("dab", dab)):
            setattr(self, name, None if factor is None else Range(factor, _DYE, name, name not in frozen))

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        dyes = [*self.named_ranges().values()]
        colours = _dyes(len(dyes), dtype=x.dtype, device=x.device)
        amounts = torch.einsum("nchw,ci->nihw", -(x / self.white).clamp_min(_DARK).log(), colours.inverse())
        more = torch.stack([dye(u[..., i]) for i, dye in enumerate(dyes)], -1).expm1()
        present = slice(len(dyes))
        return x[:, None] * torch.einsum("nsi,nihw,ic->nschw", -more, amounts[:, present], colours[present]).exp()

    def saved_arguments(self) -> dict[str, Any]:
        return {"dab": 1.2, **super().saved_arguments()}  # there, None where there is none


class Cutout(ImageOrbit):
    """The picture with a square missing: its place is uniform, its side uniform between zero and a learned length.

    The mean of each channel stands there instead. A pixel that the square covers in part is replaced in part, so the
    result is differentiable in the length. ``side`` is the longest side in pixels, or a (0, max) pair.

        >>> Cutout(3.0).describe()
        Cutout
          side  3.0 px
    """

    num_draws = 3

    def __init__(self, side: Given = 5.0, learn: bool = True) -> None:
        super().__init__()
        self.side = Range(side, _FROM_ZERO, "side", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        half = 0.5 * PIXELS * self.side(u[..., 2:]).abs()
        down, across = (covered(x.shape[axis - 2], u[..., axis : axis + 1], half) for axis in (0, 1))
        hidden = (down[..., :, None] * across[..., None, :]).reshape(*u.shape[:2], *[1] * (x.ndim - 3), *x.shape[-2:])
        return x[:, None] + hidden * (x.mean((-2, -1), keepdim=True) - x)[:, None]


def _checked(white: Number) -> Number:
    if not 0 < white < inf:
        raise ValueError(f"white must be positive and finite, got {white}.")
    return white


@constant
def _luma() -> Float[Tensor, " 3"]:
    return torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)


@constant
def _dyes(count: int) -> Float[Tensor, "3 3"]:
    """Absorbances of red, green and blue, of length one: haematoxylin, eosin, and diaminobenzidine or, of two dyes,
    what is orthogonal to both."""
    dyes = torch.tensor([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]], dtype=torch.float64)
    third = dyes[2] if count > 2 else torch.linalg.cross(dyes[0], dyes[1])
    return F.normalize(torch.stack([dyes[0], dyes[1], third]), dim=1)
