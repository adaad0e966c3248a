"""A learned interval, in which a quantity is drawn uniformly.

phi = centre + half_width * (2 u - 1). Both parameters are unconstrained: the sign of the half-width does not change the
density. So the ends cannot cross, nothing saturates, and the gradient vanishes only at width zero. A learned range must not
start there: a symmetric range of width zero has an expected gradient of zero.
"""

from __future__ import annotations

from math import inf, isfinite

import torch
from jaxtyping import Float
from torch import Tensor, nn

PIXELS = 10.0  # one unit of a parameter that is a length: 0.01 of it moves about as much as 0.01 radians do

Number = float | int
Ends = tuple[Number, Number]


class Range(nn.Module):
    """Uniform in [low, high], in a unit where values are about 0.1 to 1: then one learning rate suits all parameters."""

    reach = ("half_width",)

    def __init__(self, low: Number, high: Number, learn: bool = True, name: str = "range") -> None:
        super().__init__()
        if not (isfinite(low) and isfinite(high) and low <= high):
            raise ValueError(f"{name} must be a (low, high) pair of finite numbers with low <= high, got ({low}, {high}).")
        if learn and low == high:
            raise ValueError(f"{name} starts with width zero, where its gradient vanishes: give it some width or freeze it.")
        self.centre = nn.Parameter(torch.tensor((low + high) / 2), requires_grad=learn)
        self.half_width = nn.Parameter(torch.tensor((high - low) / 2), requires_grad=learn)

    def forward(self, u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.centre + self.half_width * (2 * u - 1)

    def ends(self) -> tuple[float, float]:
        """(low, high), in order."""
        centre, half_width = self.centre.item(), abs(self.half_width.item())
        return centre - half_width, centre + half_width


def symmetric(value: Number | Ends, name: str) -> tuple[float, float]:
    """A half-width or a (low, high) pair as a pair."""
    if not isinstance(value, float | int):
        low, high = value
        return float(low), float(high)
    if not value >= 0:
        raise ValueError(f"{name} must be a positive half-width or a (low, high) pair, got {value}.")
    return -float(value), float(value)


def factors(value: Number | Ends, name: str) -> tuple[float, float]:
    """A factor f, for 1/f to f, or a (low, high) pair of factors as a pair."""
    low, high = (1 / value if value > 0 else inf, value) if isinstance(value, float | int) else value
    if not 0 < low <= high < inf:
        raise ValueError(f"{name} must be a factor above 1 (1.2 stands for 1/1.2 to 1.2) or a (low, high) pair, got {value}.")
    return float(low), float(high)
