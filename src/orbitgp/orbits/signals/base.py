"""The base class of signal orbits: they act on (T,) or (C, T). The last axis is time, or whatever the samples lie along.

``interval`` is the distance between two samples in the ``unit`` of that axis: 0.01 and "s", or 2 and "nm". Lengths along the
axis are given and described in this unit. Without it they are samples.
"""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.description import Quantity
from orbitgp.orbits.ranges import PIXELS, Ends, Number, Range, symmetric

SAMPLES = "samples"


class SignalOrbit(Orbit):
    """An orbit of signals (T,) or (C, T)."""

    def __init__(self, interval: Number = 1.0, unit: str = SAMPLES) -> None:
        super().__init__()
        if not 0 < interval < inf:
            raise ValueError(f"interval must be a positive distance between samples, got {interval}.")
        self.interval, self.unit = float(interval), unit

    def check(self, features: torch.Size) -> None:
        if len(features) not in (1, 2):
            shape = tuple(features)
            raise ValueError(f"{type(self).__name__} acts on signals (T,) or (C, T), but the inputs have shape {shape}.")

    def length_range(self, value: Number | Ends, name: str, learn: bool) -> Range:
        """A learned range of lengths along the axis. Its parameters are in tens of samples, as those of shifts of images."""
        low, high = (end / self.interval / PIXELS for end in symmetric(value, name))
        return Range(low, high, learn=learn, name=name)

    def length(self, value: float | tuple[float, float]) -> Quantity:
        """A length in samples, or a pair of them, as a quantity in the unit of the axis."""
        if isinstance(value, tuple):
            return Quantity((value[0] * self.interval, value[1] * self.interval), self.unit)
        return Quantity(value * self.interval, self.unit)

    def saved_arguments(self) -> dict[str, Any]:
        return {"interval": self.interval, "unit": self.unit}
