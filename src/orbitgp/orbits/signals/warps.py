"""Warps of signals: x_a(t) = x(times(t)), interpolated once.

The hook of a warp is a map from output times to input times, ``times(t, u)``. Composed warps compose the times, so a
signal is interpolated once for any number of warps::

    class Chirp(SignalWarp):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(0.1))

        def times(self, t, u):  # t: samples from the centre; u[..., i] broadcasts against it
            return t + self.strength * (2 * u[..., 0] - 1) * t**2 / t.shape[-1]

All channels move alike. Warps with different borders or interpolations do not merge: each then interpolates by itself.

Linear interpolation cuts peaks. The cubic one is that of Keys (Catmull-Rom): it has a continuous slope and is exact for
parabolas, so it keeps the height of peaks. What lies outside the signal is ``zero``, its ``edge`` value, its mirror
image (``reflect``, about the last sample), or the signal again (``circular``). Positions on a sample return it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.ranges import FACTOR, PIXELS, Given, Number, Range, Unit
from orbitgp.orbits.sampling import Draws, Inputs, Transformed

SAMPLES = "samples"
Border = Literal["zero", "edge", "reflect", "circular"]
Interpolation = Literal["linear", "cubic"]
Times = Float[Tensor, "..."]
WarpDraws = Float[Tensor, "rows samples 1 dim"]

_FARTHEST = 2.0**30  # positions beyond are moved here before they become whole numbers


class SignalOrbit(Orbit):
    """An orbit of signals (T,) or (C, T). The last axis is time, or whatever the samples lie along.

    ``interval`` is the distance between two samples in the ``unit`` of that axis: 0.01 and "s", or 2 and "nm". Lengths
    along the axis are given and described in this unit. Without it they are samples.
    """

    def __init__(self, interval: Number = 1.0, unit: str = SAMPLES) -> None:
        super().__init__()
        if not 0 < interval < inf:
            raise ValueError(f"interval must be a positive distance between samples, got {interval}.")
        self.interval, self.unit = float(interval), unit

    def axis(self, from_zero: bool = False) -> Unit:
        """The unit of lengths along the axis. Their parameters are in tens of samples, as those of shifts of images."""
        return Unit(self.unit, PIXELS * self.interval, from_zero=from_zero)

    def check(self, features: torch.Size) -> None:
        if len(features) not in (1, 2):
            shape = tuple(features)
            raise ValueError(f"{type(self).__name__} acts on signals (T,) or (C, T), but inputs have shape {shape}.")


class SignalWarp(SignalOrbit):
    """An orbit of signals that moves points in time. Subclasses set ``num_draws`` and write ``times``."""

    def __init__(
        self,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(interval, unit)
        for name, value, known in (("border", border, Border), ("interpolation", interpolation, Interpolation)):
            if value not in get_args(known):
                raise ValueError(f"{name} must be one of {', '.join(get_args(known))}, got {value!r}.")
        self.border, self.interpolation = border, interpolation

    def times(self, t: Times, u: WarpDraws) -> Times:
        """Input times that the output times t look at, in samples from the centre; ``u[..., i]`` broadcasts against t.

        t is one-dimensional where the output samples themselves are meant, and else has times for each row and draw.
        """
        raise NotImplementedError(f"{type(self).__name__} must define times(t, u).")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), length = u.shape, x.shape[-1]
        if rows > 1 and u.stride(0) == 0:  # predictions use one set of draws for all signals: one set of times
            u = u[:1]
        centre = (length - 1) / 2
        t = self.times(torch.arange(length, dtype=x.dtype, device=x.device) - centre, u[:, :, None])
        position = (t + centre).expand(u.shape[0], samples, length)
        xa = interpolate(x.reshape(rows, -1, length), position, self.border, self.interpolation)
        return xa.reshape(rows, samples, *x.shape[1:])

    def merge(self, other: Orbit) -> Orbit | None:
        if isinstance(other, SignalWarp) and (self.border, self.interpolation) == (other.border, other.interpolation):
            return SignalWarpProduct([self, other])
        return None


class SignalWarpProduct(Parts, SignalWarp):
    """Warps that act one after the other, interpolated once: for ``a * b``, x_ab(t) = x(a(b(t)))."""

    parts: Sequence[SignalWarp]

    def __init__(self, parts: Sequence[SignalWarp]) -> None:
        super().__init__(parts)
        self.border, self.interpolation = parts[0].border, parts[0].interpolation

    def times(self, t: Times, u: WarpDraws) -> Times:
        for part, piece in reversed(self.pieces(u, t.shape[-1:])):  # output times meet the last to act first
            t = part.times(t, piece)
        return t


class TimeShift(SignalWarp):
    """x_a(t) = x(t - s) with s uniform in a learned range. A positive shift makes a signal come later.

        >>> TimeShift(0.05, interval=0.01, unit="s").describe()
        TimeShift
          shift  ±0.050 s

    Args:
        shift: a half-width or a (min, max) pair; by default two samples to either side. A learned range contains zero.
        border: what lies outside the signal: ``edge``, ``zero``, ``reflect`` or ``circular``. A circular signal has no
            first sample. There a half-width of half the length is every shift, and a larger one covers some twice.
        interpolation: ``linear``, or ``cubic``, which keeps the height of peaks.
        interval, unit: the distance between samples, for lengths in other units than samples.
    """

    def __init__(
        self,
        shift: Given | None = None,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        learn: bool = True,
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(border, interpolation, interval, unit)
        self.shift = Range(2 * self.interval if shift is None else shift, self.axis(), "shift", learn)

    def times(self, t: Times, u: WarpDraws) -> Times:
        return t - PIXELS * self.shift(u[..., 0])


class TimeScale(SignalWarp):
    """x_a(t) = x(t / s), slower about its centre by a factor s uniform, in its logarithm, in a learned range.

    ``stretch`` is a factor, 1.1 for 1/1.1 to 1.1, or a (min, max) pair of factors. The rest is as for ``TimeShift``.

        >>> TimeScale(1.1).describe()
        TimeScale
          stretch  ×0.91 … ×1.10
    """

    def __init__(
        self,
        stretch: Given = 1.1,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        learn: bool = True,
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(border, interpolation, interval, unit)
        self.stretch = Range(stretch, FACTOR, "stretch", learn)

    def times(self, t: Times, u: WarpDraws) -> Times:
        return t * (-self.stretch(u[..., 0])).exp()


def interpolate(
    x: Float[Tensor, "rows channels length"],
    position: Float[Tensor, "some samples points"],
    border: Border,
    interpolation: Interpolation,
) -> Float[Tensor, "rows samples channels points"]:
    """Each signal at its positions, in samples from the first; one row of positions serves for all signals."""
    rows, channels, length = x.shape
    below = position.detach().floor()
    p = position - below
    q = 1 - p
    first = below.nan_to_num().clamp(-_FARTHEST, _FARTHEST).long()
    weights = {0: q, 1: p}  # of the neighbours, counted from the sample below
    if interpolation == "cubic":
        weights = {-1: -0.5 * p * q**2, 0: q * (1 + p - 1.5 * p**2), 1: p * (1 + q - 1.5 * q**2), 2: -0.5 * p**2 * q}
    found = x.new_zeros(())
    for offset, weight in weights.items():
        place = first + offset
        index = _within(place, length, border)
        flat = index.flatten(1)[:, None].expand(rows, channels, -1)
        values = x.gather(2, flat).unflatten(2, index.shape[1:]).transpose(1, 2)
        if border == "zero":
            weight = weight * (index == place)
        found = found + weight[:, :, None] * values
    return found


def _within(place: Int[Tensor, "*shape"], length: int, border: Border) -> Int[Tensor, "*shape"]:
    """The samples that stand for these places; the nearest ones where the border is zero."""
    if border == "circular":
        return place.remainder(length)
    if border == "reflect":
        period = max(2 * (length - 1), 1)
        folded = place.remainder(period)
        return torch.minimum(folded, period - folded).clamp(max=length - 1)
    return place.clamp(0, length - 1)
