"""What else the orbit could be: the values of each of its parameters that the data support about as well as the best.

Each learned parameter of the orbit has a profile: the log evidence as a function of this parameter, with all others at
their best. By Wilks' theorem, twice the fall of a profile from its optimum to the true value is about chi squared. So
the values with a fall below 1.92 nats hold the true one in 95 % of all fits. Unlike a Gaussian around the optimum, a
profile may fall slowly on one side and fast on the other. The best orbit, and those where profiles end, are described
in degrees and pixels. What lies between the least and the most of a quantity is called plausible.

A profile is followed from the optimum outwards. Write r for the parameter, o for the others, g for the gradient and H
for minus the second derivative. At a distance d from a point at hand, the best others, what they gain and the slope of
the profile are about

    o* = o + H_oo^-1 (g_o - H_or d),    gain = g_o^T H_oo^-1 g_o / 2,    slope = g_r - H_ro H_oo^-1 g_o.

H begins as differences of the gradient at the optimum, and learns from each gradient on the way (BFGS). The root of
twice the fall is nearly a straight line in r, so a few Newton steps find where it is 1.96.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import norm

from orbitgp.orbits.description import Quantity
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_ROWS, Rung
from orbitgp.training.ladder import Ladder
from orbitgp.training.learned_vector import Vector
from orbitgp.training.maximise import Stopped, maximise

Plausible = dict[str, tuple[Quantity, Quantity] | None]  # the narrowest and the widest of each; None: not determined
Seen = list[tuple[Vector, bool]]  # plausible parameters, and whether they only stand for all that lie beyond
Function = Callable[[Vector], tuple[float, Vector]]  # a log evidence and its gradient
Matrix = Float[np.ndarray, "parameters parameters"]
Which = Bool[np.ndarray, " parameters"]

MOST_PARAMETERS = 24  # of orbit, kernel and likelihood: with more, profiles take too long
EVALUATIONS = 8  # of one end at the most; three are usual
_ROOT = float(norm.ppf(0.975))  # of twice the fall, in roots of nats, where a profile ends
_FAR = 3.0  # standard deviations, over which a difference of gradients is too coarse
_CLOSE = 0.2  # nats, to which the best others and the fall at the end are known


def plausible_ranges(climber: Ladder) -> Plausible:
    """The narrowest and the widest of each learned quantity, by its name. The widest is infinite if nothing limits it.

    There is nothing where it was not measured: a limit leaves no time for that, the run is stopped, or there are too
    many parameters. There is None of a quantity that the data do not determine at all. Some rows and few draws measure
    the profiles; those of all data are in proportion.
    """
    orbit = {id(p) for p in climber.model.orbit.parameters()}
    entries = (p for p in climber.learned.parameters for _ in range(p.numel()))
    indices = [i for i, p in enumerate(entries) if id(p) in orbit]
    samples, learned, best = climber.model.num_samples, climber.learned, climber.learned.get()
    best = np.where(learned.is_reach, best, learned.folded(best))  # what is bounded may have been reflected many times
    if not climber.converged or not indices or len(best) > MOST_PARAMETERS:
        return {}
    fewer, rows = None if samples is None else min(samples, FIRST_DRAWS), min(LEAST_ROWS, len(climber.x))
    if not climber.limit.allows(2 * len(best) + EVALUATIONS * (1 + len(indices)), rows, fewer, climber.seconds):
        return {}
    try:
        with climber.interruptibly():
            return _described(climber, _profiles(climber, best, indices, Rung(rows, fewer)))
    except (FloatingPointError, Stopped):
        return {}
    finally:
        climber.learned.set(best)


def _profiles(climber: Ladder, best: Vector, indices: list[int], rung: Rung) -> Seen:
    """Where the profiles of these parameters end. The evidence of some rows counts as if it were that of all.

    With some rows the optimum lies elsewhere. What is found there is moved to where the optimum was learned. With all
    rows and fewer draws a flat optimum lies elsewhere, too, but the ends do not.
    """
    objective, learned, times = climber.objective(rung), climber.learned, len(climber.x) / rung.rows
    known, start = dict[bytes, tuple[float, Vector]](), time.perf_counter() - climber.seconds

    def minus(vector: Vector) -> tuple[float, Vector]:
        if vector.tobytes() not in known:
            if not climber.limit.allows(1, *rung, time.perf_counter() - start):
                raise Stopped
            value, gradient = objective(vector)
            known[vector.tobytes()] = times * value, times * gradient
        return known[vector.tobytes()]

    def function(vector: Vector) -> tuple[float, Vector]:
        value, gradient = minus(vector)
        if value == inf:
            raise FloatingPointError("the evidence is not finite")
        return -value, -gradient

    hessian = precision(lambda vector: function(vector)[1], best)
    inverse = np.linalg.inv(hessian)
    summit = maximise(minus, best, _CLOSE, 0.5 * (inverse + inverse.T)).vector
    optimum, all_rows = Point(summit, *function(summit), hessian), rung.rows == len(climber.x)
    seen: Seen = [(best, False)]
    for index in indices:
        # A reach lies between zero and the widest, or has passed the widest and is reflected there.
        widest, side = learned.widest[index], 1.0 if best[index] >= 0 else -1.0
        least = 0.0 if learned.is_reach[index] or widest < inf else -inf
        ends = (widest, 2 * widest) if abs(best[index]) > widest else (least, widest)
        low, high = sorted(side * end for end in ends)
        for bound in (low, high):
            end, fallen = profile_end(function, optimum, index, bound)
            moved = end if all_rows else end + best - optimum.vector
            moved[index] = bound if end[index] == bound else moved[index].clip(low, high)
            seen.append((moved, False))
            if not fallen and abs(bound) == inf:
                seen.append((np.where(np.arange(len(best)) == index, 2 * moved - best + np.sign(bound), moved), True))
    return seen


def _described(climber: Ladder, seen: Seen) -> Plausible:
    """Least and most that orbits with these parameters describe, of quantities that are not always the same."""
    found: dict[str, list[Quantity]] = {}
    for vector, _ in seen:
        climber.learned.set(vector)
        for name, quantity in climber.model.orbit.describe().quantities.items():
            found.setdefault(name, []).append(quantity)
    moved = {name: quantities for name, quantities in found.items() if len({str(q.value) for q in quantities}) > 1}
    beyond = np.array([stands_for_all for _, stands_for_all in seen])
    return {name: _between(quantities, beyond) for name, quantities in moved.items()}


def _between(quantities: list[Quantity], beyond: Bool[np.ndarray, " seen"]) -> tuple[Quantity, Quantity] | None:
    """The least and the most of a number; of a range, both its ends at their nearest and at their farthest.

    What is largest beyond all that was seen is infinite. What is least there may be anything, and is not determined.
    """
    unit, values = quantities[0].unit, np.array([np.atleast_1d(quantity.value) for quantity in quantities])
    outwards = np.array([-1.0, 1.0])[-values.shape[1] :]  # the lower end of a range grows downwards
    first, last = (values * outwards).argmin(0), (values * outwards).argmax(0)
    farthest = np.where(outwards > 0, inf, 0.0 if unit == "×" else -inf)
    least = Quantity.of(np.diag(values[first]).squeeze().tolist(), unit)
    most = Quantity.of(np.where(beyond[last], farthest, np.diag(values[last])).squeeze().tolist(), unit)
    determined = not beyond[first].any() and not (least.is_nothing and beyond[last].all())
    return (least, most) if determined else None


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
        vector = self.vector + expected.newton(others).clip(-1.0, 1.0)  # natural units
        vector[index] = value
        return vector

    def to(self, vector: Vector, function: Function) -> Point | None:
        """The point there, with the second derivative that fits this step; None if it has no value or gradient."""
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


def precision(gradient_at: Callable[[Vector], Vector], best: Vector, size: float = 0.1) -> Matrix:
    """Minus the second derivative, by differences of the gradient. Where the data say nothing, it is one.

    It is positive definite, and so is its inverse in double precision. Where a difference of this size is many standard
    deviations of a parameter, with others as they are, it is taken again over one.
    """

    def column(index: int, size: float) -> Vector:
        step = size * np.eye(len(best))[index]
        return (gradient_at(best - step) - gradient_at(best + step)) / (2 * size)

    columns = np.stack([column(index, size) for index in range(len(best))])
    for index, own in enumerate(columns.diagonal().copy()):
        if _FAR < size * max(own, 0.0) ** 0.5 < inf:
            columns[index] = column(index, own**-0.5)
    values, vectors = np.linalg.eigh(np.nan_to_num(0.5 * (columns + columns.T), nan=0.0, posinf=0.0, neginf=0.0))
    return (vectors * values.clip(1.0, 1e10)) @ vectors.T


def profile_end(function: Function, optimum: Point, index: int, bound: float) -> tuple[Vector, bool]:
    """Where a profile has fallen on the way from the optimum to ``bound``, others at their best; and whether it has.

    Where it falls by less, it ends at the bound. If that is infinite, it ends at the last point that was seen. There is
    no profile (FloatingPointError) where the optimum turns out to be none, or where others do not come to their best.
    """
    others, origin = np.arange(len(optimum.vector)) != index, optimum.vector[index]
    side, most = np.sign(bound - origin), abs(bound - origin)
    inside, outside = (0.0, 0.0), (inf, inf)  # distances from the optimum, and roots of twice the fall
    distance, point, is_known = min(_ROOT * np.linalg.inv(optimum.hessian)[index, index] ** 0.5, most), optimum, False
    for _ in range(EVALUATIONS):
        there = point.to(point.with_best(others, index, origin + side * distance), function)
        if there is None:
            distance = 0.5 * (inside[0] + distance)
            continue
        is_worse = there.vector[index] == point.vector[index] and there.value < point.value
        point = point._replace(hessian=there.hessian) if is_worse else there
        step = point.newton(others)
        if point.value > optimum.value + 0.5 * _ROOT**2:
            raise FloatingPointError("a point on the profile is higher than its optimum")
        gain = 0.5 * point.gradient @ step
        root = max(0.0, 2 * (optimum.value - point.value - gain)) ** 0.5
        if gain > _CLOSE and root < 2 * _ROOT:
            continue  # the others are not at their best yet
        is_known = True
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
            on_a_slope = falls > 0 and root > 0  # and not on another optimum, which may be higher
            distance = min(most, distance + min(distance, (_ROOT - root) * root / falls if on_a_slope else inf))
        if abs(root**2 - _ROOT**2) < 2 * _CLOSE:
            outside = distance, _ROOT
            break
    else:
        if not is_known:
            raise FloatingPointError("no point of the profile is known")
    fallen = bool(outside[0] < inf)
    distance = distance if fallen else most
    return point.with_best(others, index, origin + side * distance) if distance < inf else point.vector, fallen
