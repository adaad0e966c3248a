"""Gain, offset and baseline: the values of a signal change, not their places. Nothing is clipped, so gradients never vanish."""

from __future__ import annotations

from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.constants import constant
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.ranges import FACTOR, NUMBER, Ends, Number, Range, Ranged
from orbitgp.orbits.sampling import Draws, Inputs, Transformed
from orbitgp.orbits.signals.base import SignalOrbit


class Gain(Ranged, SignalOrbit):
    """x_a = c x with the factor c uniform, in its logarithm, in a learned range, for all channels alike.

    Args:
        gain: a factor, 1.1 for 1/1.1 to 1.1, or a (min, max) pair of factors. A learned range contains 1.
        learn: whether the range is learned.
    """

    num_draws = 1

    def __init__(self, gain: Number | Ends = 1.1, learn: bool = True) -> None:
        super().__init__()
        self.gain = Range.of(gain, FACTOR, "gain", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] * self.gain(u[..., 0]).exp().reshape(*u.shape[:2], *[1] * (x.ndim - 1))


class Offset(Ranged, SignalOrbit):
    """x_a = x + b with b uniform in a learned range, for all channels alike.

    Args:
        offset: a half-width or a (min, max) pair, in the units of the signal. A learned range contains zero.
        learn: whether the range is learned.
    """

    num_draws = 1

    def __init__(self, offset: Number | Ends = 0.1, learn: bool = True) -> None:
        super().__init__()
        self.offset = Range.of(offset, NUMBER, "offset", learn)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        return x[:, None] + self.offset(u[..., 0]).reshape(*u.shape[:2], *[1] * (x.ndim - 1))


class Baseline(SignalOrbit):
    """x_a = x + b(t) for a random polynomial b, one for each channel.

    b(t) = baseline / sqrt(degree + 1) * sum_j z_j P_j(t) with z ~ N(0, 1) and Legendre polynomials P_j of mean square one, so
    ``baseline`` is its root mean square. Degree 0 is an offset, 1 a slope besides, and a high degree a smooth drift.

    Args:
        baseline: root mean square, in the units of the signal.
        degree: of the polynomial.
        learn: whether it is learned.
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
        drift = self.baseline * z @ polynomials(x.shape[-1], self.degree, dtype=x.dtype, device=x.device)
        return x[:, None] + drift.reshape(*u.shape[:2], *x.shape[1:])

    def describe(self) -> Description:
        return Description("Baseline", {"baseline": Quantity(self.baseline.abs().item())})

    def saved_arguments(self) -> dict[str, Any]:
        return {"degree": self.degree}


@constant
def polynomials(length: int, degree: int) -> Float[Tensor, "terms length"]:
    """Legendre polynomials on the samples, from -1 to 1; the mean square of their sum of unit coefficients is one."""
    t = torch.linspace(-1, 1, length, dtype=torch.float64)
    found = [torch.ones_like(t), t]
    for n in range(1, degree):
        found.append(((2 * n + 1) * t * found[n] - n * found[n - 1]) / (n + 1))
    scale = torch.arange(degree + 1, dtype=torch.float64).mul(2).add(1).div(degree + 1).sqrt()
    return scale[:, None] * torch.stack(found[: degree + 1])
