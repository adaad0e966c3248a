"""The profile of the evidence: one quantity of an orbit held at each of several values, all else learned.

A learner should find the top of this curve. The curve also shows how sharp the top is. Each point has an interval, as in a
comparison: values whose intervals reach as high as the top cannot be told from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from orbitgp.comparison.compare import estimator_for, features
from orbitgp.comparison.parallel import Job, Kept, Watch, column_names, train_all
from orbitgp.comparison.refine import train_and_refine
from orbitgp.comparison.verdict import Standing, leaders
from orbitgp.datasets.base import Task
from orbitgp.estimators.images import channels_first
from orbitgp.orbits.description import listed, with_unit
from orbitgp.orbits.parse import make_orbit, quantity_names, with_fixed
from orbitgp.plotting.figures import PAPER, pyplot_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEGREES = (0.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 135.0, 180.0)
MULTIPLES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # of a quantity's initial value, where there is no natural grid


@dataclass(frozen=True)
class Profile:
    """The evidence, in nats, at each value of a quantity: ``bounds``, and the intervals that it lies in (None: not known)."""

    orbit: str
    quantity: str
    unit: str
    values: list[float]
    bounds: list[float]
    lows: list[float]
    highs: list[float | None]

    @property
    def best(self) -> float:
        """The value at the top."""
        return self.values[int(np.argmax(self.bounds))]

    @property
    def tied(self) -> list[float]:
        """The values that cannot be told from the best, the best included."""
        highs = [np.inf if high is None else high for high in self.highs]
        parts = zip(self.values, self.bounds, self.lows, highs, strict=True)
        first, _ = leaders([Standing(repr(value), bound, low, high) for value, bound, low, high in parts])
        return sorted(float(standing.name) for standing in first)

    def text(self, value: float) -> str:
        """One of the values as it was given, with its unit."""
        return ("±" if self.unit == "°" else "") + with_unit(f"{value:g}", self.unit)

    def __str__(self) -> str:
        top = max(self.bounds)
        names = [self.text(value) for value in self.values]
        width = max(len(name) for name in names)
        lines = [
            f"The evidence over {self.quantity} of {self.orbit}, in nats below its top ({top:,.1f}), and what it lies between:"
        ]
        lowest = top - min(self.bounds) or 1.0
        for name, bound, low, high in zip(names, self.bounds, self.lows, self.highs, strict=True):
            bar = "█" * round(24 * (1 - (top - bound) / lowest))
            between = f"{low - top:,.1f} and {'?' if high is None else f'{high - top:,.1f}'}"
            lines.append(f"  {name:>{width}}  {bound - top:>10,.1f}  {between:<20} {bar}")
        others = [self.text(value) for value in self.tied if value != self.best]
        doubt = f", but cannot be told from {listed(others)}" if others else ""
        lines.append(f"It is highest at {self.text(self.best)}{doubt}.")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The curve with its intervals, on these axes or on new ones, which a notebook shows."""
        ax = pyplot_axes(6.0, 3.5) if ax is None else ax
        known = [high for high in self.highs if high is not None]
        roof = max([*self.bounds, *known])  # where an interval has no upper end
        up = [(roof if high is None else high) - bound for high, bound in zip(self.highs, self.bounds, strict=True)]
        down = [bound - low for low, bound in zip(self.lows, self.bounds, strict=True)]
        ax.errorbar(self.values, self.bounds, yerr=[down, up], fmt="o-", color=PAPER.accent, ms=4)
        unit = f" ({self.unit})" if self.unit else ""
        ax.set(xlabel=f"{self.quantity} of {self.orbit}{unit}", ylabel="evidence in nats")
        return ax


def profile(
    X: Any,
    y: Any,
    orbit: str,
    quantity: str,
    values: Sequence[float] | None = None,
    *,
    task: Task | Literal["auto"] = "auto",
    refine_seconds: float | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    watch: Watch | None = None,
    keep: str | PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
    **settings: Any,
) -> Profile:
    """The evidence with one quantity of an orbit, as ``describe()`` names it, held at each of these values.

    A range is held at ± its value, a factor f at 1/f to f. ``columns`` are those that the orbit may name, where X is no data
    frame. Other arguments are those of :func:`orbitgp.compare`.
    """
    if not isinstance(orbit, str):
        raise TypeError(f"a profile takes an orbit by name, as in 'rotation' or 'scale*noise', got {type(orbit).__name__}.")
    columns = column_names(X) if columns is None else columns
    X, y = channels_first(X), np.asarray(y)
    shape = features(X, settings)
    if quantity not in quantity_names(orbit, columns):
        with_fixed(orbit, quantity, 1.0, shape, columns)  # raises an error that lists the quantities
    chosen = grid(orbit, quantity, shape, columns) if values is None else list(dict.fromkeys(float(value) for value in values))
    if not chosen:
        raise ValueError("a profile needs at least one value.")
    unit = make_orbit(orbit, shape, columns).describe().quantities[quantity].unit
    kind = estimator_for(y, task)
    held = [(f"{quantity} = {value:.12g}", with_fixed(orbit, quantity, value, shape, columns)) for value in chosen]
    planned = [Job(name, at_value, random_state, kind, settings, "profile") for name, at_value in held]
    keeper = None if keep is None else Kept(Path(keep), X, y)
    train = partial(train_all, X=X, y=y, n_jobs=n_jobs, watch=watch, keeper=keeper)
    standings, _ = train_and_refine(planned, len(X), train, refine_seconds, n_jobs)
    highs = [standing.high if isfinite(standing.high) else None for standing in standings]
    return Profile(orbit, quantity, unit, chosen, [s.value for s in standings], [s.low for s in standings], highs)


def grid(orbit: str, quantity: str, shape: tuple[int, ...], columns: Sequence[str] = ()) -> list[float]:
    """Default values: fixed angles for degrees, multiples of the initial value for the rest."""
    found = make_orbit(orbit, shape, columns).describe().quantities[quantity]
    if found.unit == "°":
        return list(DEGREES)
    start = max(abs(end) for end in found.value) if isinstance(found.value, tuple) else found.value
    if found.unit == "×":
        return [start**multiple for multiple in MULTIPLES]
    return [start * multiple for multiple in MULTIPLES]
