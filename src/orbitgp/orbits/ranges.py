"""A learned interval, in which a quantity is drawn uniformly. It contains zero, where nothing happens.

If all inputs were transformed alike, g would learn from the transformed inputs instead. That is preprocessing, not an
invariance. So a learned range has no free centre. With the half-width h and t = tanh(skew), it lies between h (t - 1) and
h (t + 1), on both sides of zero:

    phi = h (t + 2 u - 1),    -1 < t < 1.

A range is symmetric, without a skew, unless it is given as a pair that is not symmetric. Both parameters are unconstrained.
A negative h mirrors the range: where the data ask for the other side, h passes through zero, smoothly. With |h| t for h t, a
range that leans to the wrong side would shrink to width zero and stay there. A learned range must not start at width zero: a
symmetric one has an expected gradient of zero there.

An angle has a widest range, the whole turn. A wider one would cover some angles twice, so h is reflected there.

A range that is not learned may lie anywhere, around a fixed centre.
"""

from __future__ import annotations

from collections.abc import Callable
from math import atanh, copysign, degrees, exp, inf, isfinite, log, pi, radians, tanh
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.description import Description, Quantity

PIXELS = 10.0  # one unit of a parameter that is a length: 0.01 of it moves about as much as 0.01 radians do

Number = float | int
Ends = tuple[Number, Number]

_ROUNDING = 1e-6  # a pair so close to symmetric, or to ending at zero, is taken to be so: tanh in float32 has no more digits
_ONE_SIDED = 20.0  # the skew of a range that ends at zero: its tanh is one in float64


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


class Unit(NamedTuple):
    """A kind of quantity: the sign that it is shown with, what people write for its ends, and its parameter, there and back.

    ``widest`` is the half-width, as a parameter, of a range that contains everything.
    """

    sign: str
    ends: Callable[[Number | Ends, str], tuple[float, float]]
    to_parameter: Callable[[float], float] = float
    from_parameter: Callable[[float], float] = float
    widest: float = inf


def _to_tens(pixels: float) -> float:
    return pixels / PIXELS


def _from_tens(tens: float) -> float:
    return PIXELS * tens


NUMBER = Unit("", symmetric)
DEGREES = Unit("°", symmetric, radians, degrees, widest=pi)
LENGTH = Unit("px", symmetric, _to_tens, _from_tens)
FACTOR = Unit("×", factors, log, exp)


def reflected(reach: Float[Tensor, ""], widest: float) -> Float[Tensor, ""]:
    """A reach within [-widest, widest], at whose ends it is reflected: its gradient has size one everywhere."""
    place = torch.remainder(reach + widest, 4 * widest)
    return torch.where(place < 2 * widest, place - widest, 3 * widest - place)


class Range(nn.Module):
    """Uniform in [low, high], in a unit where values are about 0.1 to 1: then one learning rate suits all parameters.

    Zero stands for no change: factors are given as logarithms. A learned range contains zero. If it ends there, it stays
    one-sided and its width is learned. ``centre`` is zero, or the centre of a range that is not learned.
    """

    reach = ("half_width",)
    centre: Tensor
    skew: nn.Parameter | None

    def __init__(self, low: Number, high: Number, learn: bool = True, name: str = "range", unit: Unit = NUMBER) -> None:
        super().__init__()
        if not (isfinite(low) and isfinite(high) and low <= high):
            raise ValueError(f"{name} must be a (low, high) pair of finite numbers with low <= high, got ({low}, {high}).")
        if learn and low == high:
            raise ValueError(f"{name} starts with width zero, where its gradient vanishes: give it some width or freeze it.")
        self.unit, self.widest = unit, unit.widest
        centre, half_width = (low + high) / 2, (high - low) / 2
        self.half_width = nn.Parameter(torch.tensor(min(half_width, self.widest)), requires_grad=learn)
        self.register_buffer("centre", torch.tensor(0.0 if learn else centre))
        self.register_parameter("skew", None)
        if learn:
            self._lean(centre / half_width, name)

    @classmethod
    def of(cls, value: Number | Ends, unit: Unit, name: str, learn: bool = True) -> Range:
        """The range that people mean by a half-width, a factor, or a pair."""
        low, high = unit.ends(value, name)
        return cls(unit.to_parameter(low), unit.to_parameter(high), learn, name, unit)

    def _lean(self, t: float, name: str) -> None:
        """Give a learned range its skew, if t = centre / half-width is not zero."""
        if abs(t) > 1 + _ROUNDING:
            raise ValueError(
                f"{name} is a learned range and must contain the value that changes nothing (0, or the factor 1): widen it, "
                "fix it with learn=False or frozen=..., or transform the data beforehand."
            )
        if abs(t) >= 1 - _ROUNDING:
            self.skew = nn.Parameter(torch.tensor(copysign(_ONE_SIDED, t)), requires_grad=False)
        elif abs(t) > _ROUNDING:
            self.skew = nn.Parameter(torch.tensor(atanh(t)))

    def forward(self, u: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        half_width = self.reflected()
        centre = self.centre if self.skew is None else self.centre + half_width * self.skew.tanh()
        return centre + half_width * (2 * u - 1)

    def reflected(self) -> Float[Tensor, ""]:
        """The half-width h, which is reflected where the range contains everything."""
        return self.half_width if self.widest == inf else reflected(self.half_width, self.widest)

    def ends(self) -> tuple[float, float]:
        """(low, high), in order."""
        half_width = self.reflected().item()
        centre = self.centre.item() + (0.0 if self.skew is None else half_width * tanh(self.skew.item()))
        return centre - abs(half_width), centre + abs(half_width)

    def quantity(self) -> Quantity:
        """Both ends in physical units."""
        low, high = self.ends()
        return Quantity((self.unit.from_parameter(low), self.unit.from_parameter(high)), self.unit.sign)

    def allow_skew(self) -> None:
        """Give a range without a skew one of zero, which changes no sample."""
        if self.skew is None:
            self.skew = nn.Parameter(torch.zeros_like(self.half_width), requires_grad=False)

    @property
    def same_kind(self) -> tuple[float, float]:
        """Ends with which a range with the same parameters is built, whatever their values."""
        return (-1.0, 1.0 if self.skew is None else 2.0)


class Ranged(Orbit):
    """An orbit with learned ranges. Each has the name of the argument that it is made from."""

    def named_ranges(self) -> dict[str, Range]:
        return {name.rpartition(".")[2]: part for name, part in self.named_modules() if isinstance(part, Range)}

    def describe(self) -> Description:
        return Description(type(self).__name__, {name: part.quantity() for name, part in self.named_ranges().items()})

    def saved_arguments(self) -> dict[str, Any]:
        skewed = {name: part for name, part in self.named_ranges().items() if part.skew is not None}
        return {name: tuple(map(part.unit.from_parameter, part.same_kind)) for name, part in skewed.items()}
