"""What else the orbit could be: the values of each of its parameters that the data support about as well as the best.

Each learned parameter of the orbit has a profile (``profile_likelihood``). The best orbit, and those where profiles end, are
described in degrees and pixels. What lies between the least and the most of a quantity is called plausible.
"""

from __future__ import annotations

from math import inf

import numpy as np
from jaxtyping import Bool

from orbitgp.orbits.description import Quantity
from orbitgp.planning.rungs import Rung
from orbitgp.training.ladder import Ladder
from orbitgp.training.learned_vector import Vector
from orbitgp.training.maximise import Stopped
from orbitgp.training.profile_likelihood import EVALUATIONS, Point, precision, profile_end, summit

Plausible = dict[str, tuple[Quantity, Quantity] | None]  # the narrowest and the widest of each; None: not determined
Seen = list[tuple[Vector, bool]]  # plausible parameters, and whether they only stand for all that lie beyond

MOST_PARAMETERS = 24  # of orbit, kernel and likelihood: with more, profiles take too long
_ROWS = 400  # data that profiles are measured by; those of all data are in proportion
_SAMPLES = 16  # draws of the orbit that profiles are measured with


def plausible_ranges(climber: Ladder) -> Plausible:
    """The narrowest and the widest of each learned quantity, by its name. The widest is infinite where nothing limits it.

    There is nothing where it was not measured: a limit leaves no time for that, the run is stopped, or there are too many
    parameters. There is None of a quantity that the data do not determine at all.
    """
    orbit = {id(p) for p in climber.model.orbit.parameters()}
    indices = [i for i, p in enumerate(p for p in climber.learned.parameters for _ in range(p.numel())) if id(p) in orbit]
    samples, best = climber.model.num_samples, climber.learned.get()
    if not climber.converged or not indices or len(best) > MOST_PARAMETERS:
        return {}
    fewer, rows = None if samples is None else min(samples, _SAMPLES), min(_ROWS, len(climber.x))
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

    With some rows, or with few draws, the top lies elsewhere. What is found there is moved to where the top was learned.
    """
    objective, learned, times = climber.objective(rung), climber.learned, len(climber.x) / rung.rows

    def function(vector: Vector) -> tuple[float, Vector]:
        value, gradient = objective(vector)
        if value == inf:
            raise FloatingPointError("the evidence is not finite")
        return -times * value, -times * gradient

    def gradient_at(vector: Vector) -> Vector:
        return times * objective.gradient_at(vector)

    same = rung == Rung(len(climber.x), climber.model.num_samples)
    top = summit(function, Point(best, *function(best), precision(gradient_at, best)))
    seen: Seen = [(best, False)]
    for index in indices:
        # A reach lies between zero and the widest, or has passed the widest and is reflected there.
        widest, side = learned.widest[index], 1.0 if best[index] >= 0 else -1.0
        ends = (widest, 2 * widest) if abs(best[index]) > widest else (0.0 if learned.is_reach[index] else -inf, widest)
        low, high = sorted(side * end for end in ends)
        for bound in (low, high):
            end, fallen = profile_end(function, top, index, bound)
            moved = end if same else end + best - top.vector
            moved[index] = bound if end[index] == bound else moved[index].clip(low, high)
            seen.append((moved, False))
            if not fallen and abs(bound) == inf:
                seen.append((np.where(np.arange(len(best)) == index, 2 * moved - best + np.sign(bound), moved), True))
    return seen


def _described(climber: Ladder, seen: Seen) -> Plausible:
    """The least and the most that orbits with these parameters describe, of the quantities that are not always the same."""
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
