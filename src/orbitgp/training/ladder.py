"""Learning by the evidence: candidates climb a ladder of fidelities, and those that can no longer win drop out.

Every rung has more rows or draws than the last (:mod:`orbitgp.planning.rungs`). On each, candidates climb
(:mod:`orbitgp.training.maximise`), contenders go on (:mod:`orbitgp.training.contenders`). Candidates are narrower,
wider and simpler orbits (:mod:`orbitgp.training.starts`). Three rules make the end trustworthy:

- **Fresh draws decide.** S draws that all data share are a finite orbit, whose evidence contains pairs of equal draws.
  Parameters may feed on these. So each optimum is scored with fresh draws. That score ranks the candidates, and draws
  double until that changes little, and own draws are not far from it. What only its own draws support is cut back.
- **Neighbours are tried.** Plateaus are rough: climbs also begin at wider and narrower reaches, once and at the end.
- **The model without an orbit is learned.** Candidates may have its kernel, one is narrow: no orbit ends far below.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.dense_posterior import Posterior
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.fresh_evidence import FreshEvidence
from orbitgp.likelihoods import Likelihood
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import CHECKED_ROWS, LEAST_DRAWS, Rung, for_neighbours
from orbitgp.training.contenders import DRAWS_MARGIN, contenders, neighbours
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.maximise import NOT_FINITE, Optimum, Stopped, maximise
from orbitgp.training.objective import Objective, representative_order
from orbitgp.training.run import Run
from orbitgp.training.starts import kernel_starts, move_kernel, move_to, possible_starts

DRAWS_TOLERANCE = 1.0  # nats that the last doubling of draws may change, and that fresh draws may take away
_FINE = 0.05  # nats an iteration, and share of what fresh draws change, below which a climb ends on the last rungs
_PER_ROW = 2e-5  # the same for each row: evidence of many rows is not worth as many digits
_LAST_SETS = range(3, 8)  # sets of fresh draws that score the end, three if little depends on them; 1 and 2 have chosen


@dataclass(kw_only=True)
class Ladder(Run):
    """One run of learning: :meth:`run` leaves the model conditioned on all data, at the best parameters.

    ``rungs``: rows and draws of each climb; the last is what the user gets. ``several``: whether candidates compete.
    """

    model: ExactGP | CollapsedGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"]
    y: Float[Tensor, "rows *outputs"]
    rungs: Sequence[Rung]
    options: TrainerSettings = field(default_factory=TrainerSettings)
    several: bool = True

    def __post_init__(self) -> None:
        self.learned = LearnedVector(self.model, self.likelihood)
        self.rung, self.learn_rows = self.rungs[0], self.rungs[-1].rows
        # Which rows are learned from is left to chance; which of them a start sees first should not matter.
        self.order = representative_order(self.y, self.options.seed if self.learn_rows < len(self.x) else 0)
        self.draw_shift = 0.0  # nats that fresh draws add to the evidence: a running guess, at last the result
        self.draw_error = 0.0  # nats; two of them around the shift hold it in 95 %
        self.draw_gain = 0.0  # nats that the last doubling of draws gained or fresh ones took away, if it was the last
        self.condition_seconds = 0.0  # that the posterior of the rows learned from took
        self._begin = self._best = self.learned.get()  # where a run that is stopped now would end
        self.start_records(self.model.kernel, self.model.orbit, self.likelihood)

    def run(self) -> Posterior[Any]:
        """Climb the ladder, and condition on all data. A run that is stopped takes what it can in a few seconds."""
        self._learn_in_time()
        try:
            with self.interruptibly():
                solution = self.model.condition(self.likelihood, self.y)
        except Stopped:
            quick = self.objective(Rung(*self.limit.quick_posterior(len(self.x), self.model.num_samples)))
            self.model, self.x, self.y = quick.model, quick.model.x, quick.y
            self.learn_rows = min(self.learn_rows, len(self.x))
            solution = self.model.condition(self.likelihood, self.y)
        self.record(solution.log_evidence, Rung(len(self.x), self.model.num_samples))
        return solution

    def learn(self) -> None:
        """The same without the posterior of all data; a constant mean is that of rows learned from, unless stopped."""
        self._learn_in_time()
        if self.stopped:
            return
        rung = Rung(self.learn_rows, self.model.num_samples)
        last, start = self.objective(rung), time.perf_counter()
        solution = last.model.condition(self.likelihood, last.y)
        self.condition_seconds = time.perf_counter() - start
        self.record(solution.log_evidence, rung)

    @property
    def sees_all(self) -> bool:
        """Whether the present rung has all rows that are learned from."""
        return self.rung.rows == self.learn_rows

    def objective(self, rung: Rung, plain: bool = False, near: Vector | None = None) -> Objective:
        """The evidence on a rung. A climb ``near`` a point has half of the draws, corrected, if noise allows."""
        rows = self.order[: rung.rows].to(self.x.device) if rung.rows < len(self.x) else slice(None)
        model = self.model.restricted(self.x[rows], rung.draws, self.model.orbit.without_reach() if plain else None)
        found = Objective(model, self.likelihood, self.y[rows], self.learned, plain)
        if near is None or (rung.draws or 0) <= LEAST_DRAWS or isinstance(model, CollapsedGP):
            return found
        if not model.gains_by_correction:
            return found
        corrected = replace(found, model=model.with_corrected_draws())
        return corrected if math.isfinite(corrected.value_at(near)) else found

    def _learn_in_time(self) -> None:
        """Climb as far as there is time. Where it ends early, the posterior may still have more draws."""
        self.start_clock()
        try:
            if self.learned.parameters:
                self._best = self._climb_ladder().vector
            self.converged = self._late_after is None  # a candidate that was left out might lead higher
        except Stopped:
            draws = self.rung.draws if self.stopped else self.limit.posterior_draws(self.rung.draws)
            self.rung = Rung(self.learn_rows, draws)
        self.learned.set(self._best)
        self.between_climbs()
        self.model.num_samples = self.rung.draws
        with suppress(Stopped):  # draws that chose between candidates are no longer fresh
            sets = _LAST_SETS[: 3 if not self.converged or abs(self.draw_shift) < DRAWS_TOLERANCE / 10 else 5]
            rows = self.limit.checked_rows(*self.rung, len(sets), time.perf_counter() - self._clock)
            found = self._shift(Optimum(math.nan, self.learned.get()), self.rung._replace(rows=rows), None, sets)
            self.draw_shift, self.draw_error = found.value, max(found.error, 0.5 * self.draw_gain)

    def _shift(self, at: Optimum, rung: Rung, of: Objective | None, sets: Sequence[int] = (1, 2)) -> FreshEvidence:
        """Nats that fresh draws add to the evidence there, and their error. Some of the rows tell, in proportion."""
        if rung.draws is None or isinstance(self.model, CollapsedGP):
            return FreshEvidence(0.0, 0.0)
        few = rung._replace(rows=min(rung.rows, CHECKED_ROWS))
        near, share = at.vector if of is not None and of.model.corrected else None, self.rung.rows / few.rows
        with self.interruptibly():
            objective = of if of is not None and few == rung else self.objective(few, near=near)
            fresh = objective.fresh_at(at.vector, sets)
            value = at.value if share == 1 and math.isfinite(at.value) else objective.value_at(at.vector)
            return FreshEvidence(share * (fresh.value - value), share * fresh.error)

    def _climb_ladder(self) -> Optimum:
        survivors, reached = self._candidates(), -math.inf
        for before, rung in zip((self.rungs[0], *self.rungs), self.rungs, strict=False):
            if rung.rows == before.rows and rung.draws != before.draws and not self.has_time_for(rung):
                raise Stopped
            self.rung = rung
            self.draw_shift *= rung.rows / before.rows
            tops = self._climb_each(survivors, before)
            value_at = self.objective(rung, near=tops[0].vector).value_at  # few points: no budget is asked
            survivors = contenders(tops, self.sees_all, self.learned, value_at)
            if math.isinf(survivors[0].value):
                raise FloatingPointError(NOT_FINITE)
            gain = survivors[0].fresh - reached  # infinite unless the rung before had all rows
            if self.several and self.learned.is_reach.any() and rung == for_neighbours(self.rungs):
                survivors = self._beside_neighbours(survivors)
            self.draw_shift, self._best = survivors[0].fresh - survivors[0].value, survivors[0].vector
            if abs(gain) < DRAWS_TOLERANCE and abs(self.draw_shift) < DRAWS_MARGIN:
                break
            reached = survivors[0].fresh if self.sees_all else -math.inf
        else:
            self.draw_gain = max(gain if math.isfinite(gain) else 0.0, -self.draw_shift)
        if self.several and self.learned.is_reach.any() and self.rung.draws is not None:  # the evidence is rough
            found, survivors = survivors[0], self._beside_neighbours(survivors[:1], at_end=True)
            self.draw_gain += survivors[0].fresh - found.fresh
        return survivors[0]

    def _climb_each(self, survivors: Sequence[Optimum], before: Rung) -> list[Optimum]:
        """The optima above these."""
        found = list[Optimum]()
        try:
            for optimum in survivors:
                if found and self.is_late(self.rung):
                    break
                found.append(self.climb_once(self._climb, optimum, self.rung, before))
                self.draw_shift = next((o.fresh - o.value for o in found if math.isfinite(o.fresh)), self.draw_shift)
        except Stopped as stopped:
            # The more data there are, the better each is predicted: with less evidence a row, a climb is less far.
            known = [(o.value / self.rung.rows, o.vector) for o in (*found, stopped.best) if o is not None]
            known += [(o.value / before.rows, o.vector) for o in survivors]
            self._best = max(known, key=lambda point: point[0])[1]
            raise
        return found

    def _climb(self, start: Optimum, rung: Rung, last: Rung, plain: bool = False) -> Optimum:
        """The optimum above a point of the rung before. The Hessian grows with the rows."""
        objective = self.objective(rung, plain, start.vector)
        inverse = None if start.inverse_hessian is None else start.inverse_hessian * (last.rows / rung.rows)
        tolerance = self._tolerance(objective, start.vector, rung)
        evaluate, report = lambda v: self.evaluate(objective, v, rung), lambda v: self.record(v, rung, objective)
        try:
            found = maximise(evaluate, start.vector, tolerance, inverse, report)
        except FloatingPointError:
            if not self.several:
                raise
            return Optimum(-math.inf, start.vector, None, -math.inf)  # another candidate may do
        if plain:
            return found._replace(fresh=found.value)
        return self._supported(objective, start.vector, found, rung)

    def _supported(self, objective: Objective, start: Vector, found: Optimum, rung: Rung) -> Optimum:
        """The optimum with its evidence on fresh draws; or, if these do not support it, the best on the way."""

        def scored(o: Optimum) -> Optimum:
            with self.in_budget(rung, best=found):
                return o._replace(fresh=o.value + self._shift(o, rung, objective).value)

        best = found = scored(found)
        if found.value - found.fresh <= max(DRAWS_TOLERANCE, _PER_ROW * rung.rows):
            return found
        for share in (0.25, 0.5, 1.0):
            vector = found.vector + share * (start - found.vector)
            point = scored(Optimum(objective.value_at(vector), vector))
            if point.fresh <= best.fresh:
                break
            best = point
        return best

    def _tolerance(self, objective: Objective, vector: Vector, rung: Rung) -> float:
        """Nats an iteration, below which a climb ends."""
        enough = min(LEAST_DRAWS, self.rungs[-1].draws or LEAST_DRAWS)
        is_fine = objective.is_plain or rung.draws is None or (rung.rows == self.learn_rows and rung.draws >= enough)
        self.learned.set(vector)
        least = _FINE if is_fine else DRAWS_TOLERANCE
        return max(least, _PER_ROW * rung.rows, _FINE * abs(self.draw_shift), objective.resolution())

    def _candidates(self) -> list[Optimum]:
        """Where climbs begin: each orbit with the kernel as given, or as it is best without one on more rows."""
        if not self.several:
            return [Optimum(-math.inf, self._begin)]
        orbit, kernel = self.model.orbit, self.model.kernel
        starts = possible_starts(orbit, self.x, kernel)
        if not self.learned.is_reach.any():
            return [Optimum(-math.inf, self._moved(move_to, start, orbit, kernel)) for start in starts]
        self._learn_without_orbit(self.rungs[min(1, len(self.rungs) - 1)]._replace(draws=None))
        score = partial(self.score, self.objective(self.rung, near=self._begin), self.rung)
        given = [self._moved(move_to, start, orbit) for start in starts]
        vectors = [max((vector, self.learned.with_reaches(vector, self._best)), key=score) for vector in given]
        self._narrow = vectors[min(1, len(vectors) - 1)]  # rows that are all equal have one start
        return [Optimum(-math.inf, vector) for vector in vectors]

    def _learn_without_orbit(self, rung: Rung) -> None:
        """Set the best to the orbit as given, with the kernel that is best without it, as far as there is time."""
        kernel, found = self.model.kernel, list[Optimum]()
        try:
            for start in kernel_starts(kernel):
                begin = Optimum(-math.inf, self._moved(move_kernel, start, kernel))
                found.append(self.climb_once(self._climb, begin, rung, rung, plain=True))
        except Stopped as stopped:
            found += [stopped.best] if stopped.best is not None else []
            raise
        finally:
            if found:
                plain = max(found, key=lambda optimum: optimum.value)
                self._best = self.learned.with_reaches(self._begin, plain.vector)

    def _moved(self, move: Callable[..., None], *arguments: Any) -> Vector:
        """The parameters after a move from where the run began."""
        self.learned.set(self._begin)
        move(*arguments)
        return self.learned.get()

    def _beside_neighbours(self, survivors: list[Optimum], at_end: bool = False) -> list[Optimum]:
        """The same and contenders near the best, on the present rung.

        Few draws may have misled what is learned of an orbit but for reaches, so the best begins again with that as
        given. At the end, neighbours are nearer, the narrow start is one, and only those climb that are higher.
        """
        self._best, rung = survivors[0].vector, self.rung
        score = partial(self.score, self.objective(rung, near=self._best), rung)

        def climbed(starts: list[Optimum]) -> list[Optimum]:
            return [self.climb_once(self._climb, start, rung, rung) for start in starts]

        def among(more: list[Optimum]) -> list[Optimum]:
            return contenders([*survivors, *more], self.sees_all, self.learned, score)

        if self.learned.is_shape.any() and not at_end:
            survivors = among(climbed([Optimum(-math.inf, np.where(self.learned.is_shape, self._begin, self._best))]))
        best, self._best = survivors[0], survivors[0].vector
        starts = neighbours(best, self.learned, score, self._narrow if at_end else None)
        return among(climbed([Optimum(-math.inf, start, best.inverse_hessian) for start in starts]))
