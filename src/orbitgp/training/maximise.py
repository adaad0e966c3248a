"""Maximise a smooth objective without noise, from one point, by BFGS.

The inverse Hessian of another rung or of another hill may be the first guess. It shortens the way, but it does not say
how far to go: the first step is no longer than without it. Nor does it say that the way is over: a search ends after
two iterations of its own that gained too little, or after one, where the slope and the Hessian that it has updated
since predict that the next one would gain too little as well.
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
# Minus the log evidence and its gradient; infinite if there is none.
Objective = Callable[[Vector], tuple[float, Vector]]

MAX_BFGS = 300  # parameters; the inverse Hessian of more is kept in part only (L-BFGS)
NOT_FINITE = "the evidence is not finite at the start: scale the inputs or change the kernel."
_MAX_LINE_SEARCH = 12  # evaluations of one line search, after which rounding hides any further gain


class Stopped(Exception):
    """The run was asked to stop, or its budget is spent. ``best`` is the highest point of the search that it ended."""

    best: Optimum | None = None


class _Stalled(Exception):
    """A line search finds no better point."""


class Optimum(NamedTuple):
    """The highest point of a search: the evidence there, the parameters, and the inverse Hessian as far as it is known.

    ``fresh`` is the evidence there with draws of the orbit that the search has not seen. It is minus infinity where it
    is not known, as of starts, and where the climb failed. Where a climb begins is an ``Optimum`` too: that of the rung
    before, or a start. Parameters are not folded: reaches may be negative, or past their widest.
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
) -> Optimum:
    """Climb from a point until iterations gain less than ``tolerance`` nats; ``report`` gets the value after each."""
    search = _Search(objective, tolerance, report)
    try:
        return search.run(start, inverse_hessian)
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

    def run(self, start: Vector, inverse_hessian: InverseHessian | None) -> Optimum:
        value, slope = self._evaluate(start)
        self._last = start, value, slope
        method, options = "L-BFGS-B", dict[str, Any](maxcor=30)
        if len(start) <= MAX_BFGS:
            self._inverse_hessian = _first_guess(slope, inverse_hessian)
            method, options = "BFGS", {"hess_inv0": self._inverse_hessian, "gtol": 1e-6}
        try:
            after = self._after_iteration
            minimize(self._evaluate, start, jac=True, method=method, options=options, callback=after)
        except _Stalled:
            self._inverse_hessian = None  # it may be wrong
        assert self.best is not None
        self.report(self.best.value)
        return self.best._replace(inverse_hessian=_positive_definite(self._inverse_hessian))

    def _after_iteration(self, intermediate_result: Any) -> None:
        """End the search where an iteration gains too little, and the next one would, or the last one did as well."""
        assert self._seen is not None
        assert self._last is not None
        before, self._last, self._in_line = self._last, self._seen, 0
        self.report(-self._last[1])
        self._update_inverse_hessian(self._last[0] - before[0], self._last[2] - before[2])
        self._slow = self._slow + 1 if before[1] - self._last[1] < self.tolerance else 0
        if self._slow == 2 or (self._slow and self._left(self._last[2]) < self.tolerance):
            raise StopIteration

    def _left(self, slope: Vector) -> float:
        """The gain that slope and Hessian predict for the next iteration."""
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


def _first_guess(slope: Vector, inverse_hessian: InverseHessian | None) -> InverseHessian:
    """An inverse Hessian with which the first step moves every parameter by one natural unit at most."""
    if inverse_hessian is None:
        return np.diag(1 / np.maximum(1.0, np.abs(slope)))
    return inverse_hessian / np.abs(inverse_hessian @ slope).max(initial=1.0)


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
