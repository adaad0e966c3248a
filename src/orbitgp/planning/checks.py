"""Checks of single values: each returns a plain Python value, or says in one sentence what is wrong with what it got.

Grid searches hand over NumPy's numbers, so whole numbers become ``int`` and numbers become ``float``.
"""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real
from typing import Any


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def positive_number(name: str, value: Any) -> float:
    """A finite number above zero."""
    number = _number(name, value)
    if not (isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}.")
    return number


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of these names."""
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    return str(value)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    return float(value)
