"""A learned interval, in which a quantity is drawn uniformly.

phi = centre + half_width * (2 u - 1). Both parameters are free: the sign of the half-width does not change the density, so
that the ends cannot cross and nothing saturates, and the gradient vanishes nowhere but at width zero. That is also why a
learned range must not start there: a symmetric range of width zero has an expected gradient of zero.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

Number = float | int
Ends = tuple[Number, Number]


class Range(nn.Module):
    """Uniform in [low, high], in whatever unit suits one learning rate for all parameters (about 0.1 to 1)."""

    def __init__(self, low: Number, high: Number, learn: bool = True, name: str = "range") -> None:
        super().__init__()
        if not (abs(low) < float("inf") and abs(high) < float("inf") and low <= high):
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


def symmetric(value: Number | Ends, name: str) -> Ends:
    """A half-width or a (low, high) pair as a pair."""
    if not isinstance(value, float | int):
        low, high = value
        return low, high
    if not value >= 0:
        raise ValueError(f"{name} must be a positive half-width or a (low, high) pair, got {value}.")
    return -value, value
