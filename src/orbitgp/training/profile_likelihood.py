"""How far one parameter can go until the evidence falls, with all others at their best: the profile of its log evidence.

By Wilks' theorem, twice the fall of a profile from its top to the true value is about chi squared. So the values with a fall
below 1.92 nats hold the true one in 95 % of all fits. Unlike a Gaussian around the top, a profile may fall slowly on one side
and fast on the other.

A profile is followed from the top outwards. Write r for the parameter, o for the others, g for the gradient and H for minus the
second derivative. At a distance d from a point at hand, the best others, what they gain and the slope of the profile are about

    o* = o + H_oo^-1 (g_o - H_or d),    gain = g_o^T H_oo^-1 g_o / 2,    slope = g_r - H_ro H_oo^-1 g_o.

H begins as differences of the gradient at the top, and learns from each gradient on the way (BFGS). The root of twice the fall
is nearly a straight line in r, so a few Newton steps find where it is 1.96.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from orbitgp.training.learned_vector import Vector

Function = Callable[[Vector], tuple[float, Vector]]  # a log evidence and its gradient
Matrix = Float[np.ndarray, "parameters parameters"]
Which = Bool[np.ndarray, " parameters"]

EVALUATIONS = 8  # of one end at the most; three are usual
_ROOT = 1.96  # of twice the fall, in roots of nats, where a profile ends: the 97.5 % point of a normal distribution
_CLOSE = 0.2  # nats, to which the best others and the fall at the end are known
_STEP = 0.1  # of a parameter, for differences of the gradient
_LONGEST = 1.0  # the most that others move at a time, and the standard deviation where the data say nothing


class Point(NamedTuple):
    """A place on a function: its value, its gradient, and minus its second derivative as far as that is known."""

    vector: Vector
    value: float
    gradient: Vector
    hessian: Matrix

    def newton(self, free: Which) -> Vector:
        """The step that takes these parameters to their best. It gains half of itself times the gradient."""
        step = np.zeros_like(self.vector)
        step[free] = np.linalg.solve(self.hessian[np.ix_(free, free)], self.gradient[free])
        return step

    def with_best(self, others: Which, index: int, value: float) -> Vector:
        """A parameter with this value, and the others at their best with it."""
        step = np.where(others, 0.0, value - self.vector[index])
        expected = self._replace(gradient=self.gradient - self.hessian @ step)
        vector = self.vector + expected.newton(others).clip(-_LONGEST, _LONGEST)
        vector[index] = value
        return vector

    def to(self, vector: Vector, function: Function) -> Point | None:
        """The point there, with the second derivative that fits this step; None where there is no value or no gradient."""
        try:
            value, gradient = function(vector)
        except FloatingPointError:
            return None
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return None
        hessian, step, change = self.hessian, vector - self.vector, self.gradient - gradient
        if step @ change > 0:
            before = hessian @ step
            hessian = hessian - np.outer(before, before) / (step @ before) + np.outer(change, change) / (step @ change)
        return Point(vector, value, gradient, hessian)


def precision(gradient_at: Callable[[Vector], Vector], best: Vector) -> Matrix:
    """Minus the second derivative, by differences of the gradient. Where the data say nothing, it is one."""
    steps = _STEP * np.eye(len(best))
    columns = np.stack([(gradient_at(best - step) - gradient_at(best + step)) / (2 * _STEP) for step in steps])
    values, vectors = np.linalg.eigh(np.nan_to_num(0.5 * (columns + columns.T), nan=0.0, posinf=0.0, neginf=0.0))
    return (vectors * values.clip(_LONGEST**-2)) @ vectors.T


def summit(function: Function, start: Point) -> Point:
    """The top that is close to a point."""
    for _ in range(EVALUATIONS):
        step = start.newton(np.ones(len(start.vector), bool))
        if start.gradient @ step < _CLOSE:
            gained = start.value + 0.5 * start.gradient @ step
            return start._replace(vector=start.vector + step, value=gained, gradient=np.zeros_like(step))
        there = start.to(start.vector + step.clip(-_LONGEST, _LONGEST), function)
        if there is None or there.value < start.value:
            break
        start = there
    return start


def profile_end(function: Function, top: Point, index: int, bound: float) -> tuple[Vector, bool]:
    """Where a profile has fallen on the way from the top to ``bound``, with the others at their best; and whether it has.

    Where it falls by less, it ends at the bound. If that is infinite, it ends at the last point that was seen.
    """
    others, origin = np.arange(len(top.vector)) != index, top.vector[index]
    side, most = np.sign(bound - origin), abs(bound - origin)
    inside, outside = (0.0, 0.0), (inf, inf)  # distances from the top, and roots of twice the fall
    distance, point = min(_ROOT * np.linalg.inv(top.hessian)[index, index] ** 0.5, most), top
    for _ in range(EVALUATIONS):
        there = point.to(point.with_best(others, index, origin + side * distance), function)
        if there is None:
            break
        point, step = there, there.newton(others)
        gain = 0.5 * point.gradient @ step
        root = max(0.0, 2 * (top.value - point.value - gain)) ** 0.5
        if gain > _CLOSE and root < 2 * _ROOT:
            continue  # the others are not at their best yet
        if root < _ROOT:
            inside = distance, root
        else:
            outside = distance, root
        if inside[0] == most:
            break
        if outside[0] < inf:
            distance = float(np.interp(_ROOT, [inside[1], outside[1]], [inside[0], outside[0]]))
        else:
            falls = side * (point.hessian[index] @ step - point.gradient[index])
            distance = min(most, distance + min(distance, (_ROOT - root) * root / falls if falls > 0 else inf))
        if abs(root**2 - _ROOT**2) < 2 * _CLOSE:
            outside = distance, _ROOT
            break
    fallen = bool(outside[0] < inf)
    distance = distance if fallen else most
    return point.with_best(others, index, origin + side * distance) if distance < inf else point.vector, fallen
