"""What is lost of a signal: its finest detail, or a whole stretch."""

from __future__ import annotations

from math import ceil
from typing import Any, Literal

import torch
import torch.nn.functional as F

from orbitgp.orbits.description import Description
from orbitgp.orbits.ranges import PIXELS, Ends, Number
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.orbits.signals.base import SAMPLES, SignalOrbit


class Smoothing(SignalOrbit):
    """x under a Gaussian whose standard deviation is uniform between zero and a learned width; the edge value goes on outside.

    Args:
        width: the largest standard deviation, or a (0, max) pair; by default one sample. Below a third of a sample nothing
            happens, because the Gaussian then has a single sample.
        learn: whether the width is learned.
        interval, unit: the distance between samples, for lengths in other units than samples.
    """

    num_draws = 1

    def __init__(
        self, width: Number | Ends | None = None, learn: bool = True, interval: Number = 1.0, unit: str = SAMPLES
    ) -> None:
        super().__init__(interval, unit)
        self.width = self.length_range(_from_zero(self.interval if width is None else width, "width"), "width", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        (rows, samples, _), length = u.shape, x.shape[-1]
        width = PIXELS * self.width(u).abs()  # (N, S, 1)
        reach = 1 + ceil(5 * PIXELS * max(abs(end) for end in self.width.ends()))
        distance = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
        weights = torch.softmax(-0.5 * (distance / (width + 1e-3)) ** 2, -1)  # a thousandth of a sample keeps it finite
        signals = F.pad(x.reshape(rows, -1, length), (reach, reach), mode="replicate")
        xa = torch.einsum("nsk,nctk->nsct", weights, signals.unfold(2, 2 * reach + 1, 1))
        return xa.reshape(rows, samples, *x.shape[1:])

    def describe(self) -> Description:
        low, high = self.width.ends()
        return Description("Smoothing", {"width": self.length(PIXELS * max(abs(low), abs(high)))})

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "learn": self.width.skew is not None}


class Dropout(SignalOrbit):
    """x with a gap somewhere: its place is uniform along the axis, its length uniform between zero and a learned one.

    A sample that the gap covers in part is replaced in part, so the result is differentiable in the length. The gap is in all
    channels alike.

    Args:
        gap: the largest length, or a (0, max) pair; by default five samples.
        fill: what stands there instead: ``"mean"`` of the channel, or a number.
        learn: whether the length is learned.
        interval, unit: the distance between samples, for lengths in other units than samples.
    """

    num_draws = 2

    def __init__(
        self,
        gap: Number | Ends | None = None,
        fill: Number | Literal["mean"] = "mean",
        learn: bool = True,
        interval: Number = 1.0,
        unit: str = SAMPLES,
    ) -> None:
        super().__init__(interval, unit)
        if isinstance(fill, str) and fill != "mean":
            raise ValueError(f"fill must be a number or 'mean', got {fill!r}.")
        self.fill = fill
        default = 5 * self.interval
        self.gap = self.length_range(_from_zero(default if gap is None else gap, "gap"), "gap", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        t = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device)
        centre, half = x.shape[-1] * u[..., :1] - 0.5, 0.5 * PIXELS * self.gap(u[..., 1:]).abs()
        low, high = torch.maximum(t - 0.5, centre - half), torch.minimum(t + 0.5, centre + half)
        covered = (high - low).clamp(min=0).reshape(*u.shape[:2], *[1] * (x.ndim - 2), x.shape[-1])
        fill = x.mean(-1, keepdim=True) if isinstance(self.fill, str) else self.fill
        return x[:, None] + covered * (fill - x)[:, None]

    def describe(self) -> Description:
        low, high = self.gap.ends()
        return Description("Dropout", {"gap": self.length(PIXELS * max(abs(low), abs(high)))})

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "fill": self.fill, "learn": self.gap.skew is not None}


def _from_zero(value: Number | Ends, name: str) -> Ends:
    """A length, or a pair from zero to it, as a pair."""
    low, high = (0.0, value) if isinstance(value, float | int) else value
    if low != 0 or not high > 0:
        raise ValueError(f"{name} must be a positive length or a (0, length) pair, got {value}.")
    return low, high
