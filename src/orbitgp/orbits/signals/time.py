"""Shifts and stretches in time, each uniform in a learned range.

Signs describe what one sees. A positive shift makes a signal come later, and a scale above one makes it slower.
"""

from __future__ import annotations

from typing import Any

from orbitgp.orbits.description import Description
from orbitgp.orbits.ranges import FACTOR, PIXELS, Ends, Number, Range, Ranged
from orbitgp.orbits.signals.base import SAMPLES
from orbitgp.orbits.signals.interpolation import Border, Interpolation
from orbitgp.orbits.signals.warps import SignalWarp, Times, WarpDraws


class TimeShift(SignalWarp):
    """x_a(t) = x(t - s) with s uniform in a learned range.

    Args:
        shift: a half-width or a (min, max) pair; by default two samples to either side. A learned range contains zero.
        border: what lies outside the signal: ``edge``, ``zero``, ``reflect`` or ``circular``. A circular signal has no first
            sample. There a half-width of half the length is every shift, and a larger one covers some shifts twice.
        interpolation: ``linear``, or ``cubic``, which keeps the height of peaks.
        learn: whether the range is learned.
        interval, unit: the distance between samples, for lengths in other units than samples.
    """

    num_draws = 1

    def __init__(
        self,
        shift: Number | Ends | None = None,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        learn: bool = True,
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(border, interpolation, interval, unit)
        self.shift = self.length_range(2 * self.interval if shift is None else shift, "shift", learn)

    def times(self, t: Times, u: WarpDraws) -> Times:
        return t - PIXELS * self.shift(u[..., 0])

    def describe(self) -> Description:
        low, high = self.shift.ends()
        return Description("TimeShift", {"shift": self.length((PIXELS * low, PIXELS * high))})

    def saved_arguments(self) -> dict[str, Any]:
        given = {} if self.shift.skew is None else {"shift": self.shift.same_kind}
        return {**super().saved_arguments(), **given}


class TimeScale(Ranged, SignalWarp):
    """x_a(t) = x(t / s), stretched about its centre by a factor s uniform, in its logarithm, in a learned range.

    Args:
        stretch: a factor, 1.1 for 1/1.1 to 1.1, or a (min, max) pair of factors. A learned range contains 1.
        border, interpolation, learn, interval, unit: as for ``TimeShift``.
    """

    num_draws = 1

    def __init__(
        self,
        stretch: Number | Ends = 1.1,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        learn: bool = True,
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(border, interpolation, interval, unit)
        self.stretch = Range.of(stretch, FACTOR, "stretch", learn)

    def times(self, t: Times, u: WarpDraws) -> Times:
        return t * (-self.stretch(u[..., 0])).exp()

    def saved_arguments(self) -> dict[str, Any]:
        return {**SignalWarp.saved_arguments(self), **super().saved_arguments()}
