"""Maximise a smooth objective without noise, from one point, by BFGS.

The inverse Hessian of a coarser objective may be the first guess. It shortens the way, but it never says that the way
is over: a search ends where an iteration of its own gained too little, and where the slope and the Hessian that it has
updated since predict that the next one would gain too little as well. A wrong guess may hide a direction in which much
is left: where it is small, steps are short, and the Hessian is not updated. So one more point along the slope corrects
it first.
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

InverseHessian = Float[np.ndarray, "parameters parameters"]
Objective = Callable[
    [Vector], tuple[float, Vector]
]  # minus the log evidence and its gradient; infinite if there is none

MAX_BFGS = 300  # parameters; the inverse Hessian of more is kept in part only (L-BFGS)
NOT_FINITE = "the evidence is not finite at the start: scale the inputs or change the kernel."
_MAX_LINE_SEARCH = 12  # evaluations of one line search, after which rounding hides any further gain
NEAR = (
    0.3  # natural units: about what lies on one hill, and the longest first step with an inverse Hessian from elsewhere
)
_PROBE = 0.1  # natural units, at most, along the slope: where an inherited Hessian is checked before a search ends


class Stopped(Exception):
    """The run was asked to stop, or its budget is spent. ``best`` is the highest point of the search that it ended."""

    best: Optimum | None = None


class _Stalled(Exception):
    """A line search finds no better point."""


class Optimum(NamedTuple):
    """The highest point of a search: the evidence there, the parameters, and the inverse Hessian as far as it is known.

    ``fresh`` is the evidence there with draws of the orbit that the search has not seen. It is minus infinity where it
    is not known, as of starts, and where the climb failed. Where a climb begins is an ``Optimum`` too:
    that of the rung before, or a start, whose evidence is not known and counts as minus infinity.
    """

    value: float
    vector: Vector
    inverse_hessian: InverseHessian | None = None
    fresh: float = -math.inf

    def packed(self) -> list[Any]:
        """As a state holds it."""
        return [torch.from_numpy(part.copy()) if isinstance(part, np.ndarray) else part for part in self]

    @classmethod
    def unpacked(cls, value: float, vector: Tensor, inverse_hessian: Tensor | None, fresh: float) -> Optimum:
        """From what a state holds."""
        return cls(value, vector.numpy(), None if inverse_hessian is None else inverse_hessian.numpy(), fresh)


def maximise(
    objective: Objective,
    start: Vector,
    tolerance: float,
    inverse_hessian: InverseHessian | None = None,
    report: Callable[[float], None] = lambda _: None,
    checks: bool = True,
) -> Optimum:
    """Climb from a point until an iteration gains less than ``tolerance`` nats; ``report`` gets the value after each.

    ``checks``: whether the end is checked by one more point, as an inverse Hessian of another objective may be wrong
    there. Without, it is one of another place, and the first step is short.
    """
    search = _Search(objective, tolerance, report)
    try:
        return search.run(start, inverse_hessian, checks)
    except Stopped as stopped:
        stopped.best = search.best
        raise


class _Search:
    """One run of BFGS. ``best`` is the highest point so far."""

    def __init__(self, objective: Objective, tolerance: float, report: Callable[[float], None]) -> None:
        self.objective, self.tolerance, self.report = objective, tolerance, report
        self.best: Optimum | None = None
        self._seen: tuple[Vector, float, Vector] | None = None  # the last point, its value and its slope
        self._last: tuple[Vector, float, Vector] | None = None  # the same after the last iteration
        self._inverse_hessian: InverseHessian | None = None  # updated beside scipy's own, which callbacks do not see
        self._in_line = 0  # evaluations since the last iteration
        self._slow = 0  # iterations in a row that gained too little

    def run(self, start: Vector, inverse_hessian: InverseHessian | None, checks: bool) -> Optimum:
        value, slope = self._evaluate(start)
        if len(start) <= MAX_BFGS:
            guess, most = inverse_hessian, math.inf if checks else NEAR
            if guess is None:
                guess, most = _first_guess(slope), math.inf
            longest = np.abs(guess @ slope).max(initial=0.0)
            self._inverse_hessian = guess if longest <= most else guess * (most / longest)
        self._last = start, value, slope
        is_stalled = self._iterate()
        while is_stalled:  # the Hessian may be wrong: there may be more to gain
            assert self.best is not None
            before, self._in_line = self._last[1], 0
            self._last = self.best.vector, *self._evaluate(self.best.vector)
            self._inverse_hessian = None if self._inverse_hessian is None else _first_guess(self._last[2])
            is_stalled = self._iterate()
            if before - self._last[1] < self.tolerance:
                break
        while inverse_hessian is not None and checks and self._is_on_slope():
            before = self._last[1]
            is_stalled = self._iterate()
            if before - self._last[1] < self.tolerance:
                break
        assert self.best is not None
        self.report(self.best.value)
        return self.best._replace(inverse_hessian=None if is_stalled else _positive_definite(self._inverse_hessian))

    def _iterate(self) -> bool:
        """Iterate from the last point until too little is left to gain; True if a line search found no better point."""
        assert self._last is not None
        self._seen, self._in_line, self._slow = self._last, 0, 0
        options: dict[str, Any] = {"maxcor": 30}
        method = "L-BFGS-B"
        if self._inverse_hessian is not None:
            options, method = {"hess_inv0": self._inverse_hessian, "gtol": 1e-6}, "BFGS"
        try:
            after = self._after_iteration
            minimize(self._evaluate, self._last[0], jac=True, method=method, options=options, callback=after)
        except _Stalled:
            return True
        return False

    def _is_on_slope(self) -> bool:
        """Whether there is still much to gain, with the Hessian as one more point along the slope corrects it."""
        assert self._last is not None
        assert self._seen is not None
        here, _, slope = self._last
        length = float(np.linalg.norm(slope))
        if length == 0.0:
            return False
        self._in_line = 0
        self._evaluate(here - slope * min(self.tolerance / length**2, _PROBE / length))
        self._update_inverse_hessian(self._seen[0] - here, self._seen[2] - slope)
        self._inverse_hessian = _positive_definite(self._inverse_hessian)
        return self._inverse_hessian is not None and self._left() >= self.tolerance

    def _after_iteration(self, intermediate_result: Any) -> None:
        """End the search if too little is left to gain."""
        assert self._seen is not None
        assert self._last is not None
        self._in_line = 0
        before, self._last = self._last, self._seen
        self.report(-self._last[1])
        self._update_inverse_hessian(self._last[0] - before[0], self._last[2] - before[2])
        gain = before[1] - self._last[1]
        self._slow = self._slow + 1 if gain < self.tolerance else 0
        # One slow iteration is enough where the Hessian agrees; else it may be wrong, or the iteration unlucky.
        if self._slow and (self._left() < self.tolerance or self._slow > 2):
            raise StopIteration

    def _left(self) -> float:
        """The gain that slope and Hessian predict for the next iteration."""
        assert self._last is not None
        slope = self._last[2]
        return math.inf if self._inverse_hessian is None else 0.5 * float(slope @ self._inverse_hessian @ slope)

    def _update_inverse_hessian(self, step: Vector, change: Vector) -> None:
        """The BFGS update of the inverse Hessian."""
        product = float(step @ change)
        if self._inverse_hessian is None or product <= 1e-12 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            return
        left = np.eye(len(step)) - np.outer(step, change) / product
        self._inverse_hessian = left @ self._inverse_hessian @ left.T + np.outer(step, step) / product

    def _evaluate(self, vector: Vector) -> tuple[float, Vector]:
        """The objective there, which is computed once where it is asked for twice."""
        if self._in_line > _MAX_LINE_SEARCH:
            raise _Stalled
        if self._seen is not None and np.array_equal(self._seen[0], vector):
            return self._seen[1:]
        value, slope = self.objective(vector)
        self._in_line += 1
        if math.isinf(value):
            if self.best is None:
                raise FloatingPointError(NOT_FINITE)
            return 1e6 - self.best.value, slope  # nats far below the best, so that a line search turns back
        if self.best is None or -value > self.best.value:
            self.best = Optimum(-value, vector.copy())
        self._seen = vector.copy(), value, slope
        return value, slope


def _first_guess(slope: Vector) -> InverseHessian:
    """An inverse Hessian with which the first step moves every parameter by one natural unit at most."""
    return np.diag(1 / np.maximum(1.0, np.abs(slope)))


def _positive_definite(inverse_hessian: InverseHessian | None) -> InverseHessian | None:
    """The symmetric part of an inverse Hessian, if rounding has left it positive definite."""
    if inverse_hessian is None or not np.all(np.isfinite(inverse_hessian)):
        return None
    inverse_hessian = 0.5 * (inverse_hessian + inverse_hessian.T)
    try:
        np.linalg.cholesky(inverse_hessian)
    except np.linalg.LinAlgError:
        return None
    return inverse_hessian
