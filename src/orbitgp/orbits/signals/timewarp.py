"""Smooth warps of time that never go back: the deformation of signals.

Let d be a smooth random displacement: a stationary Gaussian series with covariance amplitude^2 exp(-r^2 / (2 smoothness^2)), of
few waves, as for :class:`orbitgp.orbits.LocalDeformation`:

    d(t) = s_0 z_0 + sum_j s_j (z_2j-1 cos k_j t + z_2j sin k_j t),   z ~ N(0, 1),   sum_j s_j^2 = amplitude^2

The times t + d(t) run backwards where d' < -1. So the warp has the speed exp(d' - V / 2) instead of 1 + d':

    w(t) = d(0) + int_0^t exp(d'(r) - V / 2) dr,   V = Var d' = sum_j s_j^2 k_j^2.

A speed is positive, so w increases for every draw. Its mean is one, hence E w(t) = t. To first order w(t) = t + d(t): where the
amplitude is small against the smoothness, it is the root mean square displacement.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, log
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.images.deformation import finest_of, log_spectrum, waves
from orbitgp.orbits.ranges import PIXELS, Number, check_names
from orbitgp.orbits.signals.warps import SAMPLES, Border, Interpolation, SignalWarp, Times, WarpDraws


class TimeWarp(SignalWarp):
    """x_a(t) = x(w(t)) for smooth random increasing w.

        >>> TimeWarp(1.0).describe()
        TimeWarp
          amplitude   1.0 samples
          smoothness  20 samples

    Args:
        amplitude: root mean square displacement; by default two samples.
        smoothness: the length over which displacements change: their correlation is exp(-r^2 / (2 smoothness^2)). By default
            20 samples. The number of base draws grows with the length of the signal over it.
        frozen: which of ``"amplitude"`` and ``"smoothness"`` are not learned.
        border, interpolation, interval, unit: as for ``TimeShift``.
        finest: the smallest smoothness that warps can have. By default 5/6 of the first, or the first if it is frozen.
    """

    reach = ("amplitude",)

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
        check_names(frozen, "TimeWarp", ("amplitude", "smoothness"))
        self.coarsest = 20.0 if smoothness is None else smoothness / self.interval
        self.finest = finest_of(self.coarsest, frozen) if finest is None else finest / self.interval
        size = 2.0 if amplitude is None else amplitude / self.interval
        for name, value in (("amplitude", size), ("smoothness", self.coarsest), ("finest", self.finest)):
            if not 0 < value < inf:
                raise ValueError(f"{name} must be a positive length in {self.unit}, got {value * self.interval}.")
        self.amplitude = nn.Parameter(torch.tensor(size / PIXELS), requires_grad="amplitude" not in frozen)
        self.log_smoothness = nn.Parameter(torch.tensor(log(self.coarsest)), requires_grad="smoothness" not in frozen)

    def check(self, features: torch.Size) -> None:
        super().check(features)
        if features[-1] < 2:
            raise ValueError(f"TimeWarp needs signals of two samples or more, but the inputs have shape {tuple(features)}.")

    def draws_for(self, features: torch.Size) -> int:
        return 2 * len(waves(tuple(features[-1:]), self.finest, self.coarsest)) + 1

    def deviations(self, length: int) -> tuple[Float[Tensor, " terms"], Float[Tensor, " terms"]]:
        """Standard deviations s_j, in samples, and frequencies k_j of all terms, the constant first."""
        like = self.log_smoothness
        k = waves((length,), self.finest, self.coarsest, dtype=like.dtype, device=like.device)[:, 0]
        s = PIXELS * self.amplitude.abs() * (0.5 * log_spectrum(like.exp(), k)).exp()
        return s, F.pad(k, (1, 0))

    def times(self, t: Times, u: WarpDraws) -> Times:
        length = t.shape[-1]
        s, k = (part.to(u.dtype) for part in self.deviations(length))
        z = torch.special.ndtri(u[:, :, 0])
        cosines = s * torch.cat([z[..., :1], z[..., 1::2]], -1)
        sines = (s * k)[1:] * z[..., 2::2]
        phase = k[1:, None] * (torch.arange(length, dtype=u.dtype, device=u.device) - (length - 1) / 2)
        # d' = sum_j k_j (b_j cos k_j t - a_j sin k_j t).
        slope = sines @ phase.cos() - (cosines * k)[..., 1:] @ phase.sin()
        speed = (slope - 0.5 * (s * k).square().sum()).exp()
        passed = F.pad(torch.cumulative_trapezoid(speed, dim=-1), (1, 0))
        middle = 0.5 * (passed[..., (length - 1) // 2] + passed[..., length // 2])
        warped = passed + (cosines.sum(-1) - middle)[..., None]
        return warped if t.ndim == 1 else _between(warped.expand(t.shape), t + (length - 1) / 2)

    def describe(self) -> Description:
        lengths = {"amplitude": PIXELS * self.amplitude.abs().item(), "smoothness": self.log_smoothness.exp().item()}
        return Description("TimeWarp", {name: Quantity(self.interval * v, self.unit) for name, v in lengths.items()})

    def saved_arguments(self) -> dict[str, Any]:
        lengths = {"smoothness": self.coarsest * self.interval, "finest": self.finest * self.interval}
        return {**super().saved_arguments(), **lengths}


def _between(
    warped: Float[Tensor, "rows samples length"], position: Float[Tensor, "rows samples length"]
) -> Float[Tensor, "rows samples length"]:
    """The warp at positions that are no samples: straight between them, and with speed one outside.

    Every operation is monotone in floating point, too: a + p (b - a) may exceed b by rounding alone, hence the minimum.
    """
    last = warped.shape[-1] - 1
    inside = position.clamp(0, last)
    below = inside.detach().floor()
    index = below.nan_to_num().long()
    low, high = warped.gather(-1, index), warped.gather(-1, (index + 1).clamp(max=last))
    return torch.minimum(low + (inside - below) * (high - low), high) + (position - inside)
