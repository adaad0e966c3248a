"""Smooth warps of time that never go back: the deformation of signals.

Let d be a smooth random displacement: a stationary Gaussian series with covariance amplitude^2 exp(-r^2 / (2
smoothness^2)), of few waves, as for :class:`orbitgp.orbits.LocalDeformation`:

    d(t) = s_0 z_0 + sum_j s_j (z_2j-1 cos k_j t + z_2j sin k_j t),   z ~ N(0, 1),   sum_j s_j^2 = amplitude^2

The times t + d(t) run backwards where d' < -1. So the warp has the speed exp(d' - V / 2) instead of 1 + d':

    w(t) = d(0) + int_0^t exp(d'(r) - V / 2) dr,   V = Var d' = sum_j s_j^2 k_j^2.

A speed is positive, so w increases for every draw. Its mean is one, hence E w(t) = t. To first order w(t) = t + d(t):
where the amplitude is small against the smoothness, it is the root mean square displacement.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.description import Description
from orbitgp.orbits.images.deformation import SmoothField
from orbitgp.orbits.ranges import Number
from orbitgp.orbits.signals.warps import SAMPLES, Border, Interpolation, SignalWarp, Times, WarpDraws

AllTimes = Float[Tensor, "rows samples length"]


class TimeWarp(SignalWarp):
    """x_a(t) = x(w(t)) for smooth random increasing w.

        >>> TimeWarp(1.0).describe()
        TimeWarp
          amplitude   1.0 samples
          smoothness  20 samples

    Args:
        amplitude: root mean square displacement; by default two samples.
        smoothness: the length over which displacements change: their correlation is exp(-r^2 / (2 smoothness^2)). By
            default 20 samples. The number of base draws grows with the length of the signal over it.
        frozen: which of ``"amplitude"`` and ``"smoothness"`` are not learned.
        border, interpolation, interval, unit: as for ``TimeShift``.
        finest: the smallest smoothness that warps can have. By default 5/6 of the first, or the first if it is frozen.
    """

    def __init__(
        self,
        amplitude: Number | None = None,
        smoothness: Number | None = None,
        border: Border = "edge",
        interpolation: Interpolation = "linear",
        frozen: Collection[str] = (),
        interval: Number = 1.0,
        unit: str = SAMPLES,
        finest: Number | None = None,
    ) -> None:
        super().__init__(border, interpolation, interval, unit)
        size = 2 * self.interval if amplitude is None else amplitude
        length = 20 * self.interval if smoothness is None else smoothness
        self.field = SmoothField(size, length, frozen, finest, "TimeWarp", self.interval, self.unit)

    def check(self, features: torch.Size) -> None:
        super().check(features)
        if features[-1] < 2:
            raise ValueError(f"TimeWarp needs signals of two samples or more, but inputs have shape {tuple(features)}.")

    def draws_for(self, features: torch.Size) -> int:
        return self.field.draws_for(tuple(features[-1:]))

    def times(self, t: Times, u: WarpDraws) -> Times:
        size = (length,) = (t.shape[-1],)
        c = self.field.coefficients(u[:, :, 0], size)[:, :, 0]
        constant, cosines, sines = c[..., 0], c[..., 1::2], c[..., 2::2]
        k, s = self.field.waves(size, u)[:, 0], self.field.deviations(size).to(u.dtype)[1::2]
        phase = k[:, None] * (torch.arange(length, dtype=u.dtype, device=u.device) - (length - 1) / 2)
        # d' = sum_j k_j (b_j cos k_j t - a_j sin k_j t).
        slope = (sines * k) @ phase.cos() - (cosines * k) @ phase.sin()
        speed = (slope - 0.5 * (s * k).square().sum()).exp()
        passed = F.pad(torch.cumulative_trapezoid(speed, dim=-1), (1, 0))
        middle = 0.5 * (passed[..., (length - 1) // 2] + passed[..., length // 2])
        warped = passed + (constant + cosines.sum(-1) - middle)[..., None]
        return warped if t.ndim == 1 else _between(warped.expand(t.shape), t + (length - 1) / 2)

    def describe(self) -> Description:
        return Description("TimeWarp", self.field.quantities())

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), **self.field.saved_arguments()}


def _between(warped: AllTimes, position: AllTimes) -> AllTimes:
    """The warp at positions that are no samples: straight between them, and with speed one outside.

    Every operation is monotone in floating point, too: a + p (b - a) may exceed b by rounding alone, hence the minimum.
    """
    last = warped.shape[-1] - 1
    inside = position.clamp(0, last)
    below = inside.detach().floor()
    index = below.nan_to_num().long()
    low, high = warped.gather(-1, index), warped.gather(-1, (index + 1).clamp(max=last))
    return torch.minimum(low + (inside - below) * (high - low), high) + (position - inside)
