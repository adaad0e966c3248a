"""The best of several starts: each is brought close to its top on some of the data, and the highest goes on.

Very few data say which of them lead to different orbits. More data then decide between these.
The model without the orbit is tried from several lengthscales, and from several constants of a learned feature map, so that an
orbit that contains it does not end below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from orbitgp.orbits import Identity
from orbitgp.training.climb import Stopped, Top
from orbitgp.training.learned_vector import Vector
from orbitgp.training.objective import ExactObjective
from orbitgp.training.starts import Start, kernel_starts, move_kernel, move_to, narrow_start

EARLY_SETTLED = 0.2  # nats an iteration, below which a climb ends that is not the last
SETTLED = 0.02  # the same of the last climb, and of those without an orbit, where evaluations cost little
_SKETCH_ROWS = 50  # orbits are first tried with so few rows, where there are twice as many
_FINALISTS = 4  # starts that lead to different orbits, at most: they begin again, with more rows
_HOPELESS = 10.0  # nats below the best, with very few rows
_NEAR = 0.15  # natural units by which the reaches of one orbit differ


class BestStart:
    """The search for the best of these starts, by the evidence of so many rows.

    ``climb`` goes to the top from where the model is, until an iteration gains less than so many nats. ``num_samples`` is the
    number of draws if the user has fixed it.
    """

    def __init__(
        self,
        objective: ExactObjective,
        starts: list[Start],
        rows: int,
        num_samples: int | None,
        climb: Callable[[float], Top],
    ) -> None:
        self.objective, self.model, self.learned = objective, objective.model, objective.learned
        self.starts, self.rows, self.num_samples, self.climb = starts, rows, num_samples, climb
        self.begin = self.learned.get()

    def find(self, stage: Callable[..., Top]) -> Top:
        """The highest top. Every climb is handed to ``stage``, which may know its top already."""
        sketch = bool(self.learned.is_reach.any()) and self.rows >= 2 * _SKETCH_ROWS
        rows = _SKETCH_ROWS if sketch else self.rows
        tops = self._tops([(self._from_start, start, rows) for start in self.starts], stage, rows)
        if sketch:
            # Few rows say where the orbit goes, but may leave kernel and noise in a corner.
            again = [(self._from_vector, self._with_reaches(top.vector, self.begin)) for top in self._finalists(tops)]
            tops = self._tops(again, stage, self.rows, _highest(tops)) or tops
        if self.learned.is_reach.any():
            tops += self._beside_no_orbit(_highest(tops), stage)
        return _highest(tops)

    def _tops(
        self, climbs: list[tuple[Any, ...]], stage: Callable[..., Top], rows: int, sketch: Top | None = None
    ) -> list[Top]:
        """The tops of climbs with so many rows. A run that is stopped meanwhile is left at the best point that is known.

        That may be the top of a ``sketch`` with fewer rows. The more data there are, the better each is predicted from the
        others: a climb that has less evidence for each row than the sketch has not come as far.
        """
        tops: list[Top] = []
        try:
            for climb in climbs:
                tops.append(stage(*climb))
        except Stopped as stopped:
            found = [(top.value / rows, top.vector) for top in tops]
            found += [] if stopped.best is None else [(stopped.best[0] / rows, stopped.best[1])]
            found += [] if sketch is None else [(sketch.value / _SKETCH_ROWS, sketch.vector)]
            if found:
                self.learned.set(max(found, key=lambda point: point[0])[1])
            raise
        return tops

    def _finalists(self, tops: list[Top]) -> list[Top]:
        """Where starts ended at different orbits, the best first."""
        ranked = sorted(tops, key=lambda top: -top.value)
        different: list[Top] = []
        for top in ranked:
            apart = [np.abs(np.abs(top.vector) - np.abs(better.vector))[self.learned.is_reach].max() for better in different]
            if top.value > ranked[0].value - _HOPELESS and all(distance > _NEAR for distance in apart):
                different.append(top)
        return different[:_FINALISTS]

    def _beside_no_orbit(self, best: Top, stage: Callable[..., Top]) -> list[Top]:
        """Where the orbit ends if kernel and noise begin at their best without it; nothing where the other starts will do.

        Those begin with one kernel. They will do if it leads to the best top without the orbit, and they are not below
        that top. Otherwise the orbit begins as wide as it was found to be. If it ends below that top even so, it begins narrow,
        where it is almost the model without the orbit.
        """
        try:
            without = [stage(self._without_orbit, start) for start in kernel_starts(self.model.kernel)]
            top = _highest(without)
            enough = top.value - EARLY_SETTLED
            if without[0].value >= enough and best.value >= enough:
                return []
            wide = stage(self._from_vector, self._with_reaches(best.vector, top.vector))
            if max(best.value, wide.value) >= enough:
                return [wide]
            return [wide, stage(self._from_narrow, top)]
        except Stopped:
            self.learned.set(best.vector)
            raise

    def _from_start(self, start: Start, rows: int) -> Top:
        self.learned.set(self.begin)
        move_to(start, self.model.orbit, self.model.kernel)
        return self._climb(rows)

    def _from_vector(self, vector: Vector) -> Top:
        self.learned.set(vector)
        return self._climb(self.rows)

    def _from_narrow(self, top: Top) -> Top:
        """From a top without the orbit, with an orbit that moves inputs a little."""
        self.learned.set(self.begin)
        move_to(narrow_start(self.model.orbit, self.model.x), self.model.orbit)
        return self._from_vector(self._with_reaches(self.learned.get(), top.vector))

    def _without_orbit(self, start: Start) -> Top:
        """Kernel and noise close to their top without the orbit. That has no draws, so it costs little."""
        model, orbit, samples = self.model, self.model.orbit, self.model.num_samples
        self.learned.set(self.begin)
        move_kernel(start, model.kernel)
        model.orbit, model.num_samples = Identity(), self.num_samples
        try:
            return self._climb(self.rows)
        finally:
            model.orbit, model.num_samples = orbit, samples

    def _climb(self, rows: int) -> Top:
        """Close to the top with so many rows."""
        self.objective.local = None
        with self.objective.subset(rows):
            try:
                return self.climb(SETTLED if isinstance(self.model.orbit, Identity) else EARLY_SETTLED)
            except FloatingPointError:  # another start may do
                return Top(-math.inf, self.begin, None, -math.inf)

    def _with_reaches(self, reaches: Vector, others: Vector) -> Vector:
        """The reaches of one vector, and all else of the other."""
        return np.where(self.learned.is_reach, reaches, others)


def _highest(tops: list[Top]) -> Top:
    return max(tops, key=lambda top: top.value)
