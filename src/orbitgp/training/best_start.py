"""The best of several starts: each is brought close to its top on some of the data, and the highest goes on.

Very few data say which of them lead to different orbits. More data then decide between these. Where the highest tops differ by
less than what other draws of the orbit would change, they climb on with more draws, until one is ahead.
The model without the orbit is tried from several lengthscales, and from several constants of a learned feature map, so that an
orbit that contains it does not end below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orbitgp.orbits import Identity
from orbitgp.training.climb import Curvature, Stopped, Top
from orbitgp.training.learned_vector import Vector
from orbitgp.training.objective import ExactObjective
from orbitgp.training.starts import Start, kernel_starts, move_kernel, move_to, narrow_start

EARLY_SETTLED = 0.2  # nats an iteration, below which a climb ends that is not the last
SETTLED = 0.02  # the same of the last climb, and of those without an orbit, where evaluations cost little
_SKETCH_ROWS = 50  # orbits are first tried with so few rows, where there are twice as many
_FINALISTS = 4  # starts that lead to different orbits, at most: they begin again, with more rows
_HOPELESS = 10.0  # nats below the best, with very few rows
_NEAR = 0.15  # natural units by which the reaches of one orbit differ
TIE = 2.0  # nats by which tops may differ, and be in another order where climbs go on
_RIVALS = 3  # tops of which more draws decide, at most
_ASIDE = 1.5  # times as narrow and as wide: where else a top is sought


class BestStart:
    """The search for the best of these starts, by the evidence of so many rows.

    ``climb`` goes to the top from where the model is, until an iteration gains less than so many nats. ``num_samples`` is the
    number of draws if the user has fixed it, and ``more_samples`` are those with which ties are decided. The model keeps the
    number that this took; ``moved`` is what the last doubling of it has changed, if there was any. ``is_late`` says that no
    time is left for searching: the best so far goes on.
    """

    def __init__(
        self,
        objective: ExactObjective,
        starts: list[Start],
        rows: int,
        num_samples: int | None,
        more_samples: Sequence[int],
        climb: Callable[..., Top],
        is_late: Callable[[], bool],
    ) -> None:
        self.is_late = is_late
        self.objective, self.model, self.learned = objective, objective.model, objective.learned
        self.starts, self.rows, self.num_samples, self.more_samples, self.climb = starts, rows, num_samples, more_samples, climb
        self.begin = self.learned.get()
        self.moved = math.inf

    def find(self, stage: Callable[..., Top]) -> Top:
        """The highest top. Every climb is handed to ``stage``, which may know its top already."""
        sketch = bool(self.learned.is_reach.any()) and self.rows >= 2 * _SKETCH_ROWS
        rows = _SKETCH_ROWS if sketch else self.rows
        tops = self._tops([(self._from_start, start, rows) for start in self.starts], stage, rows)
        if sketch:
            again = [(self._from_sketch, top) for top in self._finalists(tops)]
            tops = self._tops(again, stage, self.rows, _highest(tops)) or tops
        if not self.learned.is_reach.any() or self.is_late():
            return _highest(tops)
        tops += self._beside_no_orbit(_highest(tops), stage)
        tops += self._beside_everything(_highest(tops), stage)
        return self._decided(self._rivals(tops), stage)

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
                if tops and self.is_late():
                    break
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
            of_use = top.value > ranked[0].value - _HOPELESS and all(distance > _NEAR for distance in apart)
            if of_use and not any(self._is_one_top(top, better, _SKETCH_ROWS) for better in different):
                different.append(top)
        return different[:_FINALISTS]

    def _rivals(self, tops: list[Top]) -> list[Top]:
        """Different tops that are about as high as the highest, the best first."""
        different: list[Top] = []
        for top in sorted(tops, key=lambda top: -top.value):
            tied = not different or top.value > different[0].value - TIE
            if tied and not any(self._is_one_top(top, better, self.rows) for better in different):
                different.append(top)
        return different[:_RIVALS]

    def _is_one_top(self, top: Top, better: Top, rows: int) -> bool:
        """Whether the evidence does not fall between two tops: then they are one, which is flat."""
        signs = np.where(self.learned.is_reach & (top.vector * better.vector < 0), -1.0, 1.0)  # of a reach, either is the same
        between = self._log_evidence(0.5 * (signs * top.vector + better.vector), rows)
        return bool(between > top.value - EARLY_SETTLED)

    def beside(self, top: Top, rows: int, stage: Callable[..., Top]) -> list[Top]:
        """The highest of this top of so many rows and those near it, and all that are about as high.

        Narrower and wider orbits lead to the others.
        """
        found = [top]
        try:
            for factor in (1 / _ASIDE, _ASIDE):
                if self.is_late():
                    break
                reaches = np.clip(factor * top.vector, -self.learned.widest, self.learned.widest)
                other = stage(self._from_vector, self._with_reaches(reaches, top.vector), rows, top.curvature)
                if not any(self._is_one_top(other, better, rows) for better in found):
                    found.append(other)
        except Stopped:
            self.learned.set(_highest(found).vector)
            raise
        highest = _highest(found).value
        return sorted((top for top in found if top.value > highest - TIE), key=lambda top: -top.value)

    def _decided(self, rivals: list[Top], stage: Callable[..., Top]) -> Top:
        """The best of these, after climbs with more draws where they differ by less than these change."""
        for samples in self.more_samples:
            if len(rivals) == 1 or self.is_late():
                break
            self.model.num_samples = samples
            further = self._tops([(self._further, top) for top in rivals], stage, self.rows)
            moves = [abs(after.value - before.value) for before, after in zip(rivals, further, strict=False)]
            undecided = still_tied(further, moves)
            rivals, self.moved = [top for top, _ in undecided], undecided[0][1]
        return rivals[0]

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

    def _beside_everything(self, best: Top, stage: Callable[..., Top]) -> list[Top]:
        """Where the orbit ends if it begins as wide as it can be; nothing where the best is far from that.

        All angles alike are a top of their own: with few draws the evidence is rough, and a climb may end a few degrees before.
        """
        widest = self.learned.widest
        apart = np.abs(np.abs(best.vector) - widest)  # on either side, as a reach is reflected there
        near = (apart > 0) & (apart < 0.5 * widest)
        if not near.any():
            return []
        try:
            return [stage(self._from_vector, np.where(near, widest, best.vector))]
        except Stopped as stopped:
            if stopped.best is None or stopped.best[0] < best.value:
                self.learned.set(best.vector)
            raise

    def _from_start(self, start: Start, rows: int) -> Top:
        self.learned.set(self.begin)
        move_to(start, self.model.orbit, self.model.kernel)
        return self._climb(rows)

    def _from_sketch(self, top: Top) -> Top:
        """From where very few rows have led. They may have left kernel and noise in a corner: then these begin again."""
        found, begun = top.vector, self._with_reaches(top.vector, self.begin)
        better = self._log_evidence(found, self.rows) > self._log_evidence(begun, self.rows)
        return self._from_vector(found if better else begun)

    def _log_evidence(self, vector: Vector, rows: int) -> float:
        """The log evidence (and priors) there, with so many rows."""
        self.learned.set(vector)
        self.objective.local = None
        with self.objective.subset(rows):
            try:
                return self.objective.value()
            except FloatingPointError:
                return -math.inf

    def _from_vector(self, vector: Vector, rows: int | None = None, curvature: Curvature | None = None) -> Top:
        self.learned.set(vector)
        return self._climb(rows or self.rows, curvature=curvature)

    def _further(self, top: Top) -> Top:
        """From a top with fewer draws, to the last."""
        self.learned.set(top.vector)
        return self._climb(self.rows, SETTLED, top.curvature)

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

    def _climb(self, rows: int, enough: float | None = None, curvature: Curvature | None = None) -> Top:
        """Close to the top with so many rows."""
        self.objective.local = None
        if enough is None:
            enough = SETTLED if isinstance(self.model.orbit, Identity) else EARLY_SETTLED
        with self.objective.subset(rows):
            try:
                return self.climb(enough, curvature)
            except FloatingPointError:  # another start may do
                return Top(-math.inf, self.begin, None, -math.inf)

    def _with_reaches(self, reaches: Vector, others: Vector) -> Vector:
        """The reaches of one vector, and all else of the other."""
        return np.where(self.learned.is_reach, reaches, others)


def still_tied(tops: list[Top], moves: list[float]) -> list[tuple[Top, float]]:
    """The highest top, and those behind it by no more than draws have moved the two; each with its move, the best first."""
    ranked = sorted(zip(tops, moves, strict=True), key=lambda pair: -pair[0].value)
    best, of_best = ranked[0]
    return [(top, moved) for top, moved in ranked if best.value - top.value <= max(moved, of_best)]


def _highest(tops: list[Top]) -> Top:
    return max(tops, key=lambda top: top.value)
