"""A learned interval, in which a quantity is drawn uniformly. It contains zero, where nothing happens.

If all inputs were transformed alike, g would learn from the transformed inputs instead. That is preprocessing, not an
invariance. So a learned range has no free centre. With the half-width h and t = tanh(skew), it lies between h (t - 1)
and h (t + 1), on both sides of zero:

    phi = h (t + 2 u - 1),    -1 < t < 1.

A range is symmetric, without a skew, unless it is given as a pair that is not symmetric. Both parameters are
unconstrained. A negative h mirrors the range: where the data ask for the other side, h passes through zero, smoothly.
With |h| t for h t, a range that leans to the wrong side would shrink to width zero and stay there. A learned range must
not start at width zero: a symmetric one has an expected gradient of zero there.

An angle has a widest range, the whole turn. A wider one would cover some angles twice, so h is reflected there.

A range that is not learned may lie anywhere, around a fixed centre.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import atanh, copysign, exp, inf, log, pi, tanh
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.description import Quantity

PIXELS = 10.0  # one unit of a parameter that is a length: 0.01 of it moves about as much as 0.01 radians do

Number = float | int
Ends = tuple[Number, Number]
Given = Number | Ends  # what people write for a range: a half-width, a factor or a length, or a (low, high) pair

_ROUNDING = 1e-6  # a pair this close to symmetric, or to ending at zero, counts as such: tanh in float32 ends there
_ONE_SIDED = 20.0  # the skew of a range that ends at zero: its tanh is one in float64


class Unit(NamedTuple):
    """A kind of quantity: its sign, and the size of one unit of its parameter. Factors have logarithms.

    ``widest`` is the half-width, as a parameter, of a range that contains everything. A range ``from_zero`` is given
    and described by its larger end alone.
    """

    sign: str = ""
    scale: float = 1.0
    widest: float = inf
    from_zero: bool = False

    def ends(self, value: Given, name: str) -> tuple[float, float]:
        """What people write as a pair."""
        if isinstance(value, float | int):
            low, high = 1 / value if self.sign == "×" and value > 0 else 0.0 if self.from_zero else -value, value
        else:
            low, high = value
        good, expected = True, "a positive half-width or a (low, high) pair of finite numbers with low <= high"
        if self.sign == "×":
            good, expected = low > 0, "a factor above 1 (1.2 for 1/1.2 to 1.2) or a (low, high) pair with low <= high"
        elif self.from_zero:
            good, expected = low == 0 < high, "a positive length or a (0, length) pair"
        if not (good and -inf < low <= high < inf):
            raise ValueError(f"{name} must be {expected}, got {value}.")
        return float(low), float(high)

    def to_parameter(self, value: float) -> float:
        return log(value) if self.sign == "×" else value / self.scale

    def from_parameter(self, parameter: float) -> float:
        return exp(parameter) if self.sign == "×" else self.scale * parameter


NUMBER = Unit()
DEGREES = Unit("°", 180 / pi, widest=pi)
LENGTH = Unit("px", PIXELS)
FACTOR = Unit("×")


def check_names(given: Collection[str], owner: str, known: Collection[str]) -> None:
    """Refuse names of parameters that the owner does not have."""
    for name in given:
        if name not in known:
            raise ValueError(f"{owner} has no parameter {name!r}: it has {', '.join(known)}.")


def reflected(reach: Float[Tensor, "*shape"], widest: float) -> Float[Tensor, "*shape"]:
    """A reach within [-widest, widest], at whose ends it is reflected: its gradient has size one everywhere."""
    if widest == inf:
        return reach
    place = torch.remainder(reach + widest, 4 * widest)
    return torch.where(place < 2 * widest, place - widest, 3 * widest - place)


class Range(nn.Module):
    """Uniform between two ends, in a unit where values are about 0.1 to 1: then one learning rate suits all parameters.

    Zero stands for no change: factors are logarithms. A learned range contains zero. If it ends there, it stays
    one-sided and its width is learned. ``centre`` is zero, or the centre of a range that is not learned.
    """

    reach = ("half_width",)
    centre: Tensor
    skew: nn.Parameter | None

    def __init__(self, value: Given, unit: Unit = NUMBER, name: str = "range", learn: bool = True) -> None:
        super().__init__()
        low, high = (unit.to_parameter(end) for end in unit.ends(value, name))
        if learn and low == high:
            raise ValueError(f"{name} starts with width zero, where its gradient vanishes: widen it or freeze it.")
        self.unit, self.widest = unit, unit.widest
        centre, half_width = (low + high) / 2, (high - low) / 2
        self.half_width = nn.Parameter(torch.tensor(min(half_width, self.widest)), requires_grad=learn)
        self.register_buffer("centre", torch.tensor(0.0 if learn else centre))
        self.register_parameter("skew", None)
        t = centre / half_width if learn else 0.0
        if abs(t) > 1 + _ROUNDING:
            raise ValueError(
                f"{name} is a learned range and must contain the value that changes nothing (0, or the factor 1): "
                "widen it, fix it with learn=False or frozen=..., or transform the data beforehand."
            )
        if abs(t) >= 1 - _ROUNDING:
            self.skew = nn.Parameter(torch.tensor(copysign(_ONE_SIDED, t)), requires_grad=False)
        elif abs(t) > _ROUNDING:
            self.skew = nn.Parameter(torch.tensor(atanh(t)))

    def forward(self, u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        centre, half_width = self.place()
        return centre + half_width * (2 * u - 1)

    def place(self) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Centre and half-width."""
        half_width = reflected(self.half_width, self.widest)
        return self.centre if self.skew is None else self.centre + half_width * self.skew.tanh(), half_width

    def ends(self) -> tuple[float, float]:
        """(low, high), in order."""
        half_width = reflected(self.half_width, self.widest).item()
        centre = self.centre.item() + (0.0 if self.skew is None else half_width * tanh(self.skew.item()))
        return centre - abs(half_width), centre + abs(half_width)

    def quantity(self) -> Quantity:
        """Both ends in physical units, or the larger one of a range from zero."""
        low, high = (self.unit.from_parameter(end) for end in self.ends())
        return Quantity(max(abs(low), abs(high)) if self.unit.from_zero else (low, high), self.unit.sign)

    def skewed_ends(self) -> tuple[float, float]:
        """Ends, as people write them, with which a learned range has a skew, whatever its value."""
        return self.unit.from_parameter(0.0 if self.unit.from_zero else -1.0), self.unit.from_parameter(2.0)


def drawn(ranges: Iterable[Range], u: Float[Tensor, "*shape ranges"]) -> tuple[Float[Tensor, "*shape"], ...]:
    """Values of several ranges, with as many operations as for one."""
    centres, half_widths = (torch.stack(parts).to(u) for parts in zip(*(one.place() for one in ranges), strict=True))
    return (centres + half_widths * (2 * u - 1)).unbind(-1)
