"""One climb: from one point to the top of an objective without noise, by BFGS.

A climb ends where another iteration would gain too little. It may begin with the curvature that an earlier climb has learned.
Then the slope alone says what is left to gain, and a climb that begins at the top ends there at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from orbitgp.training.learned_vector import Vector

Curvature = Float[np.ndarray, "parameters parameters"]  # its inverse, as BFGS learns it
Objective = Callable[[Vector], tuple[float, Vector]]  # minus the log evidence and its gradient; infinite where there is none

_MANY = 300  # parameters, above which curvature is kept in part only
_FLAT = 0.5  # nats for a natural unit of a parameter
_UNKNOWN = 10.0  # rows for each nat by which the evidence curves at least, in natural units of a parameter
_STALLED = 12  # evaluations of one line search, after which rounding hides what is left to gain
_PENALTY = 1e6  # nats below the best: what a point gets at which the evidence cannot be computed


class Stopped(Exception):
    """The run was asked to stop, or its budget is spent. ``best`` is the highest point of the climb that it ended."""

    best: tuple[float, Vector] | None = None


class _Stalled(Exception):
    """A line search finds no better point."""


class Top(NamedTuple):
    """Where a climb has ended, the inverse curvature there as far as it is known, and the evidence where the climb began."""

    value: float
    vector: Vector
    curvature: Curvature | None
    first_value: float

    def packed(self) -> list[Any]:
        """As a state holds it."""
        return [torch.from_numpy(part.copy()) if isinstance(part, np.ndarray) else part for part in self]

    @classmethod
    def unpacked(cls, value: float, vector: Tensor, curvature: Tensor | None, first_value: float) -> Top:
        """From what a state holds."""
        return cls(value, vector.numpy(), None if curvature is None else curvature.numpy(), first_value)


class Climb:
    """One climb by an objective on so many rows, until an iteration gains less than ``enough`` nats.

    ``best`` is the highest point so far: its evidence and its parameters.
    """

    def __init__(
        self, objective: Objective, rows: int, enough: float, curvature: Curvature | None, report: Callable[[float], None]
    ) -> None:
        self.objective, self.rows, self.enough, self.curvature, self.report = objective, rows, enough, curvature, report
        self.best: tuple[float, Vector] | None = None
        self._seen: tuple[Vector, float, Vector] | None = None  # the last point, and what was computed there
        self._in_line = 0  # evaluations since the last iteration
        self._values: list[float] = []  # after each iteration

    def to_top(self, start: Vector) -> Top:
        """The top above this point."""
        try:
            value, slope = self._evaluate(start)
            if self._left(slope) < self.enough:
                self.report(-value)
            else:
                self._minimize(start, slope)
        except Stopped as stopped:
            stopped.best = self.best
            raise
        assert self.best is not None
        return Top(*self.best, self.curvature, -value)

    def _minimize(self, start: Vector, slope: Vector) -> None:
        options: dict[str, Any] = {"maxcor": 30}
        method = "L-BFGS-B"
        if len(start) <= _MANY:
            # The first step moves every parameter by one unit at most, or as the curvature of the last climb suggests.
            first = np.diag(1 / np.maximum(1.0, np.abs(slope)))
            options, method = {"hess_inv0": first if self.curvature is None else self.curvature, "gtol": 1e-2}, "BFGS"
        try:
            found = minimize(self._evaluate, start, jac=True, method=method, options=options, callback=self._after_iteration)
        except _Stalled:
            self.curvature = None
        else:
            if method == "BFGS":
                curvature = 0.5 * (found.hess_inv + found.hess_inv.T)
                self.curvature = curvature if _positive_definite(curvature) else None

    def _after_iteration(self, intermediate_result: Any) -> None:
        """End the climb if too little is left to gain."""
        self._in_line = 0
        value = -float(intermediate_result.fun)
        self.report(value)
        self._values.append(value)
        assert self._seen is not None
        slope = self._seen[2]
        # Two iterations, as one alone may be unlucky; more where the slope says that curvature is not known yet.
        patience = 2 if np.abs(slope).max() < _FLAT else 5
        if len(self._values) > patience and value - self._values[-1 - patience] < 2 * self.enough:
            raise StopIteration
        if self._left(slope) < self.enough:
            raise StopIteration

    def _left(self, slope: Vector) -> float:
        """What is left to gain, by the curvature that the last climb has learned."""
        if self.curvature is None:
            return math.inf
        # What was learned on the way says little of directions that were hardly taken: any may be this flat.
        return 0.5 * float(slope @ self.curvature @ slope + slope @ slope * (_UNKNOWN / self.rows))

    def _evaluate(self, vector: Vector) -> tuple[float, Vector]:
        """The objective there, which is computed once where it is asked for twice."""
        if self._in_line > _STALLED:
            raise _Stalled
        if self._seen is not None and np.array_equal(self._seen[0], vector):
            return self._seen[1:]
        value, slope = self.objective(vector)
        self._in_line += 1
        if math.isinf(value):
            if self.best is None:
                raise FloatingPointError("the evidence is not finite at the start: scale the inputs or change the kernel.")
            return _PENALTY - self.best[0], slope
        if self.best is None or -value > self.best[0]:
            self.best = -value, vector.copy()
        self._seen = vector.copy(), value, slope
        return value, slope


def _positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(np.isfinite(matrix)))
