"""Warps of signals: x_a(t) = x(times(t)), interpolated once.

The hook of a warp is a map from output times to input times, ``times(t, u)``. Composed warps compose the times, so a signal is
interpolated once for any number of warps::

    class Chirp(SignalWarp):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.strength = torch.nn.Parameter(torch.tensor(0.1))

        def times(self, t, u):  # t: samples from the centre; u[..., i] broadcasts against it
            return t + self.strength * (2 * u[..., 0] - 1) * t**2 / t.shape[-1]

All channels move alike. Warps with different borders or interpolations do not merge: each then interpolates by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.ranges import Number
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.orbits.signals.base import SAMPLES, SignalOrbit
from orbitgp.orbits.signals.interpolation import Border, Interpolation, interpolate

Times = Float[Tensor, "..."]
WarpDraws = Float[Tensor, "rows samples 1 dim"]


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
        """The input times that the output times t look at, in samples from the centre; ``u[..., i]`` broadcasts against t.

        t is one-dimensional where the output samples themselves are meant, and else has times for each row and draw.
        """
        raise NotImplementedError(f"{type(self).__name__} must define times(t, u).")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        rows, samples, _ = u.shape
        length = x.shape[-1]
        if rows > 1 and u.stride(0) == 0:  # predictions use one set of draws for all signals: one set of times
            u = u[:1]
        centre = (length - 1) / 2
        t = self.times(torch.arange(length, dtype=x.dtype, device=x.device) - centre, u[:, :, None])
        position = (t + centre).expand(len(u), samples, length)
        xa = interpolate(x.reshape(rows, -1, length), position, self.border, self.interpolation)
        return xa.reshape(rows, samples, *x.shape[1:])

    def merge(self, other: Orbit) -> Orbit | None:
        alike = isinstance(other, SignalWarp) and (self.border, self.interpolation) == (other.border, other.interpolation)
        return SignalWarpProduct([self, other]) if alike and isinstance(other, SignalWarp) else None

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "border": self.border, "interpolation": self.interpolation}


class SignalWarpProduct(Parts, SignalWarp):
    """Warps that act one after the other, interpolated once: for ``a * b``, x_ab(t) = x(a(b(t)))."""

    parts: Sequence[SignalWarp]

    def __init__(self, parts: Sequence[SignalWarp]) -> None:
        super().__init__(parts)
        self.border, self.interpolation = parts[0].border, parts[0].interpolation

    def times(self, t: Times, u: WarpDraws) -> Times:
        features = t.shape[-1:]
        pieces = torch.split(u, [part.draws_for(features) for part in self.parts], dim=-1)
        # The last warp to act on the signal is the first to act on the output times.
        for part, piece in zip(reversed(self.parts), reversed(pieces), strict=True):
            t = part.times(t, piece)
        return t
