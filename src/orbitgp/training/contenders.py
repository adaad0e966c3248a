"""Who climbs on: the rules by which optima of one rung of the ladder begin the next.

There are three rules. An optimum may still win: it lies behind the best by no more than what more rows or more draws
could change. It is on a hill of its own: the evidence falls between it and every better one that stays. And at most
``MOST_CONTENDERS`` stay. The same rules tell which neighbours of the best are its rivals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from orbitgp.planning.rungs import MOST_CONTENDERS
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.maximise import Optimum

ROWS_MARGIN = 10.0  # nats behind the best that more rows may make good
DRAWS_MARGIN = 2.0  # nats behind the best that more draws may make good
_SADDLE = 0.2  # nats that the evidence must fall between two optima, or they are one
_NEIGHBOUR = 1.6  # factor by which reaches are made wider and narrower: about the distance of hills on a rough plateau


def contenders(
    optima: Sequence[Optimum], sees_all: bool, learned: LearnedVector, value_at: Callable[[Vector], float]
) -> list[Optimum]:
    """The distinct optima that may still win, that with the most evidence on fresh draws first. It always stays.

    ``sees_all``: whether they have seen all rows that are learned from, so that only draws may change their order.
    ``value_at``: the log evidence on their rung. It moves the parameters of the model, which stay where it was asked
    last.
    """
    best, *others = sorted(optima, key=lambda optimum: -optimum.fresh)
    found, margin = [best], DRAWS_MARGIN if sees_all else ROWS_MARGIN
    for optimum in others:
        if len(found) == MOST_CONTENDERS or optimum.fresh < best.fresh - margin:
            break
        if not any(_same_hill(optimum, better, learned, value_at) for better in found):
            found.append(optimum)
    return found


def _same_hill(optimum: Optimum, better: Optimum, learned: LearnedVector, value_at: Callable[[Vector], float]) -> bool:
    """Whether the evidence does not fall between two optima, so that they are one."""
    middle = 0.5 * (learned.folded(optimum.vector) + learned.folded(better.vector))
    return value_at(middle) > min(optimum.value, better.value) - _SADDLE


def neighbours(
    best: Optimum, learned: LearnedVector, value_at: Callable[[Vector], float], narrow: Vector | None = None
) -> list[Vector]:
    """Where to begin beside the best: with all reaches wider and narrower.

    Kernel and likelihood stay, or follow as far as the inverse Hessian tells, whichever has more evidence. At the end
    of a search, where the narrow start is given: half as far, and that start, where they are higher.
    """
    widening = _NEIGHBOUR if narrow is None else _NEIGHBOUR**0.5
    scaled = [np.where(learned.is_reach, by * best.vector, best.vector) for by in (1 / widening, widening)]
    if narrow is not None:
        return [one for one in (*scaled, narrow) if value_at(one) > best.value]
    return [max((one, _followed(one, best, learned)), key=value_at) for one in scaled]


def _followed(vector: Vector, best: Optimum, learned: LearnedVector) -> Vector:
    """These reaches, with the kernel and the likelihood where the evidence is expected to be best for them.

    With the inverse Hessian H, a step d of reaches r takes others o by H_or H_rr^-1 d.
    """
    others, moved = ~(learned.is_reach | learned.is_shape), learned.is_reach
    if best.inverse_hessian is None or not others.any():
        return vector
    along = best.inverse_hessian[np.ix_(others, moved)]
    step = along @ np.linalg.solve(best.inverse_hessian[np.ix_(moved, moved)], (vector - best.vector)[moved])
    found = vector.copy()
    found[others] += step.clip(-1.0, 1.0)
    return found
