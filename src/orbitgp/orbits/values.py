"""Orbits that change the values of an input, not their places. Nothing is clipped, so gradients never vanish.

A learned range contains the value that changes nothing: what all inputs gain alike is no invariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.machine import constant
from orbitgp.orbits.base import Orbit
from orbitgp.orbits.ranges import FACTOR, NUMBER, PIXELS, Given, Number, Range
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.orbits.signals.warps import SAMPLES, SignalOrbit

OneEach = Float[Tensor, "rows samples 1"]


class GaussianNoise(Orbit):
    """x_a = x + scale * e with e ~ N(0, I): one learned scale shared by all features, or one for each.

    ``columns`` are the features with noise, by default all. For a table, estimators leave out those that do not vary or
    that hold nothing but 0 and 1, as the indicators of categories do.

    Under an RBF kernel this orbit has a closed form (again an RBF, wider and lower), with which exact inference needs
    no draws. The sign of the scale does not matter, so it is unconstrained and never saturates.

        >>> GaussianNoise(0.1).describe()
        GaussianNoise
          scale  0.10
    """

    reach = ("scale",)
    in_units_of_inputs = True

    def __init__(
        self,
        init_scale: Number = 0.1,
        num_features: int | None = None,
        learn: bool = True,
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if not init_scale > 0:
            raise ValueError(f"init_scale must be positive (at zero the gradient vanishes), got {init_scale}.")
        self.num_features, self.columns = num_features, columns
        scales = torch.full(() if num_features is None else (num_features,), float(init_scale))
        self.scale = nn.Parameter(scales, requires_grad=learn)

    def draws_for(self, features: torch.Size) -> int:
        return features.numel()

    def check(self, features: torch.Size) -> None:
        given, needed = self.scale.numel(), features.numel()
        if self.scale.ndim and given != needed:
            raise ValueError(f"GaussianNoise has {given} scales, but the inputs have {needed} features.")

    def scales(self, features: int) -> Tensor:
        """The scale of each feature, or one for all."""
        if self.columns is None:
            return self.scale
        return self.scale * torch.zeros(features).index_fill(0, torch.tensor(self.columns), 1.0).to(self.scale)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] + (self.scales(u.shape[-1]) * torch.special.ndtri(u)).reshape(*u.shape[:2], *x.shape[1:])


def _draw(interval: Range, u: Draws, x: Inputs) -> Tensor:
    """One value for each sample, which broadcasts against ``x[:, None]``."""
    return interval.forward(u[..., 0]).reshape(*u.shape[:2], *[1] * (x.ndim - 1))


class Brightness(Orbit):
    """x_a = x + b with b uniform in a learned range: a half-width or a (min, max) pair, in the units of the pixels.

    >>> Brightness(0.2).describe()
    Brightness
      brightness  ±0.20
    """

    def __init__(self, brightness: Given = 0.1, learn: bool = True) -> None:
        super().__init__()
        self.brightness = Range(brightness, NUMBER, "brightness", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] + _draw(self.brightness, u, x)


class Contrast(Orbit):
    """x_a = pivot + c (x - pivot) with the factor c uniform, in its logarithm, in a learned range.

    ``contrast`` is a factor, 1.2 for 1/1.2 to 1.2, or a (min, max) pair of factors. ``pivot`` is the value that stays:
    the ``"mean"`` of the image over pixels and channels, or a number. 0 keeps a background of 0.

        >>> Contrast(1.3).describe()
        Contrast
          contrast  ×0.77 … ×1.30
    """

    def __init__(self, contrast: Given = 1.2, pivot: Number | Literal["mean"] = "mean", learn: bool = True) -> None:
        super().__init__()
        if isinstance(pivot, str) and pivot != "mean":
            raise ValueError(f"pivot must be a number or 'mean', got {pivot!r}.")
        self.pivot = pivot
        self.contrast = Range(contrast, FACTOR, "contrast", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        pivot = x.mean(dim=tuple(range(1, x.ndim)), keepdim=True) if isinstance(self.pivot, str) else self.pivot
        # expm1 instead of exp: a factor of one returns the image exactly.
        return x[:, None] + _draw(self.contrast, u, x).expm1() * (x - pivot)[:, None]


class Gain(SignalOrbit):
    """x_a = c x with the factor c uniform, in its logarithm, in a learned range, for all channels alike.

    ``gain`` is a factor, 1.1 for 1/1.1 to 1.1, or a (min, max) pair of factors.

        >>> Gain(1.3).describe()
        Gain
          gain  ×0.77 … ×1.30
    """

    def __init__(self, gain: Given = 1.1, learn: bool = True) -> None:
        super().__init__()
        self.gain = Range(gain, FACTOR, "gain", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] * _draw(self.gain, u, x).exp()


class Offset(SignalOrbit):
    """x_a = x + b with b uniform in a learned range, a half-width or a (min, max) pair, for all channels alike.

    >>> Offset(0.5).describe()
    Offset
      offset  ±0.50
    """

    def __init__(self, offset: Given = 0.1, learn: bool = True) -> None:
        super().__init__()
        self.offset = Range(offset, NUMBER, "offset", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] + _draw(self.offset, u, x)


class Baseline(SignalOrbit):
    """x_a = x + b(t) for a random polynomial b, one for each channel.

    b(t) = baseline / sqrt(degree + 1) * sum_j z_j P_j(t) with z ~ N(0, 1) and Legendre polynomials P_j of mean square
    one, so ``baseline`` is its root mean square, in the units of the signal. Degree 0 is an offset, 1 adds a slope, and
    a high degree is a smooth drift.

        >>> Baseline(0.1).describe()
        Baseline
          baseline  0.10
    """

    reach = ("baseline",)

    def __init__(self, baseline: Number = 0.1, degree: int = 2, learn: bool = True) -> None:
        super().__init__()
        if not 0 < baseline < inf:
            raise ValueError(f"baseline must be positive (at zero the gradient vanishes), got {baseline}.")
        if degree < 0:
            raise ValueError(f"degree must be 0 or more, got {degree}.")
        self.degree = degree
        self.baseline = nn.Parameter(torch.tensor(float(baseline)), requires_grad=learn)

    def draws_for(self, features: torch.Size) -> int:
        return features[:-1].numel() * (self.degree + 1)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        z = torch.special.ndtri(u).unflatten(2, (-1, self.degree + 1))
        drift = self.baseline * z @ _polynomials(x.shape[-1], self.degree, dtype=x.dtype, device=x.device)
        return x[:, None] + drift.reshape(*u.shape[:2], *x.shape[1:])


@constant
def _polynomials(length: int, degree: int) -> Float[Tensor, "terms length"]:
    """Legendre polynomials on the samples, from -1 to 1; the mean square of their sum of unit coefficients is one."""
    t = torch.linspace(-1, 1, length, dtype=torch.float64)
    scale = torch.arange(degree + 1, dtype=torch.float64).mul(2).add(1).div(degree + 1).sqrt()
    return scale[:, None] * torch.from_numpy(np.polynomial.legendre.legvander(t.numpy(), degree)).T


class Smoothing(SignalOrbit):
    """x under a Gaussian whose standard deviation is uniform from zero to a learned width; edge values go on outside.

    ``width`` is the largest standard deviation, or a (0, max) pair; by default one sample. Below a third of a sample
    nothing happens, because the Gaussian then has a single sample. ``interval`` and ``unit`` are as for ``TimeShift``.

        >>> Smoothing(1.0).describe()
        Smoothing
          width  1.0 samples
    """

    def __init__(
        self, width: Given | None = None, learn: bool = True, interval: Number = 1.0, unit: str = SAMPLES
    ) -> None:
        super().__init__(interval, unit)
        self.width = Range(self.interval if width is None else width, self.axis(from_zero=True), "width", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), length = u.shape, x.shape[-1]
        width = PIXELS * self.width(u).abs()  # (N, S, 1)
        reach = 1 + ceil(5 * PIXELS * max(abs(end) for end in self.width.ends()))
        weights = bells(width, reach)
        signals = F.pad(x.reshape(rows, -1, length), (reach, reach), mode="replicate")
        xa = torch.einsum("nsk,nctk->nsct", weights, signals.unfold(2, 2 * reach + 1, 1))
        return xa.reshape(rows, samples, *x.shape[1:])


def bells(width: OneEach, reach: int) -> Float[Tensor, "rows samples steps"]:
    """Weights of Gaussians of these standard deviations at whole steps, ``reach`` to either side; they sum to one."""
    distance = torch.arange(-reach, reach + 1, dtype=width.dtype, device=width.device)
    return torch.softmax(-0.5 * (distance / (width + 1e-3)) ** 2, -1)  # a thousandth of a step keeps it finite


def covered(length: int, u: OneEach, half: OneEach) -> Float[Tensor, "rows samples length"]:
    """The share of each of this number of steps that a gap covers, centred at the share u of their length."""
    t = torch.arange(length, dtype=u.dtype, device=u.device)
    centre = length * u - 0.5
    return (torch.minimum(t + 0.5, centre + half) - torch.maximum(t - 0.5, centre - half)).clamp(min=0)
