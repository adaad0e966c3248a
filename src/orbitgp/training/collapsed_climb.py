"""Learning by the collapsed bound: the sparse model of few data climbs to a top, without noise and without learning rates.

With q(u) at its best in closed form and fixed draws of the orbit, the bound is a plain function of kernel, likelihood, orbit
and inducing points (:mod:`orbitgp.inference.collapsed`). It is climbed as the exact evidence is, with more and more draws.
First the inducing points stay where they are: the noise that an exact start has found is too small for a bound with slack, and
must rise before the points have anything to say. Thousands of inducing coordinates gain a little for hundreds of evaluations: a
climb ends where that is next to nothing beside the slack of the bound.

This is how a sparse run learns where all data can be seen in every step. Where they are too many, where the likelihood couples
its latent functions, or where an option was set that only stochastic steps have, it takes stochastic steps. Where these would
take too long, too, it climbs the bound of some rows, and all rows have their say in the last q(u).
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedBound, CollapsedGP
from orbitgp.inference.cost import FIRST_SAMPLES, LEAST_SAMPLES, MOST_SAMPLES, Cost, affordable
from orbitgp.inference.dense_posterior import Solution
from orbitgp.inference.inducing_points import points_are_best
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.training.best_start import EARLY_SETTLED, BestStart
from orbitgp.training.budget import (
    EVALUATIONS,
    FEW_EVALUATIONS,
    PATIENCE,
    ROWS_A_POINT,
    evaluation_cost,
    pass_seconds,
    passes_within,
    seconds_on,
    short_climb,
    step_seconds,
)
from orbitgp.training.climb import Top
from orbitgp.training.diagnostics import Record
from orbitgp.training.objective import ExactObjective
from orbitgp.training.options import TrainerSettings
from orbitgp.training.quasi_newton import QuasiNewton
from orbitgp.training.time_limit import Rest

_POSTERIOR_DRAWS = 512  # of an infinite orbit, that the last q(u) is made from
_FEW_DRAWS = 4  # where there is no time for more; more rows gain more
_OF_SEVERAL_CLIMBS = ("climb", "without_orbit", "rows")  # what records of other runs tell climbs apart by
_OF_SLACK = 1e-3  # of what the bound loses to few inducing points: an iteration that gains less gains too little
# Options that only stochastic steps have: who sets one of them asks for such steps.
_STOCHASTIC = {
    "learning_rate",
    "orbit_rate",
    "inducing_rate",
    "warmup",
    "orbit_warmup",
    "posterior_samples",
    "posterior_rho",
    "posterior_every",
    "polish_passes",
    "sampler",
    "num_groups",
    "local",
    "local_rounds",
    "network_rate",
}


class ClimbSize(NamedTuple):
    """How the collapsed bound is climbed: with how many draws of the orbit, of how many rows, and how often, all at most."""

    draws: int
    rows: int
    evaluations: int


def may_see_all(likelihood: Likelihood, rows: int, options: TrainerSettings) -> bool:
    """Whether every step may see all data: nobody asks for parts of them, or for something that only stochastic steps have."""
    if likelihood.couples or processes.count() > 1 or options.optimizer != "natural" or options.changed() & _STOCHASTIC:
        return False
    parts = [getattr(options, name) for name in ("batch_size", "posterior_rows") if name in options.changed()]
    return min(parts, default=rows) >= rows


def climb_size(
    model: InvariantGP, likelihood: Likelihood, x: Float[Tensor, "rows *features"] | RowSource, options: TrainerSettings
) -> ClimbSize | None:
    """The most draws and rows with which a run can climb the collapsed bound; None where it takes stochastic steps.

    A finite orbit is enumerated, and ``climb_samples`` fixes the draws of another. About a hundred evaluations of the bound
    may take as long as an exact fit may, or as the stochastic steps that they replace. On a GPU there may be time for few of
    them only, with few draws: they come further than stochastic steps. On a CPU, a climb with the fewest draws may take four
    times as long as an exact fit: in the same time, stochastic steps come less far. Where these would take longer than that,
    too, there are fewer evaluations, with fewer draws, and with fewer rows where that is not enough: q(u) is that of all rows
    in the end. Where the user has set no limit, that is the limit.
    """
    if not isinstance(x, Tensor) or not may_see_all(likelihood, len(x), options):
        return None

    def evaluation(samples: int, rows: int = len(x)) -> Cost:
        return evaluation_cost(model, likelihood, x, samples, rows)

    def fits(samples: int, seconds: float, rows: int = len(x), evaluations: int = EVALUATIONS) -> bool:
        cost = evaluation(samples, rows)
        run = replace(cost, seconds=evaluations * cost.seconds)
        return affordable(run, seconds, free_memory(x.device)) is None

    if isinstance(model.orbit, FiniteOrbit):
        numbers: tuple[int, ...] = (model.orbit.size,)
    elif options.climb_samples is not None:
        numbers = (options.climb_samples,)
    else:
        numbers = (MOST_SAMPLES, MOST_SAMPLES // 2, LEAST_SAMPLES)
    if x.device.type != "cpu":  # on a GPU, steps are in a lower precision than a climb can be
        found = next((samples for samples in numbers if fits(samples, options.exact_seconds)), None)
        most, early = numbers[-1], FIRST_SAMPLES if len(numbers) > 1 else numbers[-1]
        if found is None:
            short = short_climb(evaluation, most, early)
            found = most if affordable(short, seconds_on(x.device, options), free_memory(x.device)) is None else None
        return None if found is None else ClimbSize(found, len(x), options.max_steps)

    patience = min(PATIENCE * options.exact_seconds, inf if options.max_seconds is None else options.max_seconds)
    steps = options.max_steps * step_seconds(model, likelihood, x, options)
    asked = steps if "max_steps" in options.changed() else min(steps, patience)
    seconds = max(min(options.exact_seconds, patience), asked)
    limits = [*((samples, seconds) for samples in numbers), (numbers[-1], patience)]
    found = next((samples for samples, limit in limits if fits(samples, limit)), None)
    if found is not None:
        return ClimbSize(found, len(x), options.max_steps)
    if steps <= patience:
        return None
    few = numbers[-1]
    if len(numbers) > 1:  # nobody has fixed them; an orbit that the bound learns needs more than one that is kept
        few = FIRST_SAMPLES if likelihood.num_locals else _FEW_DRAWS
    rows = bisect_left(range(1, len(x) + 1), True, key=lambda rows: not fits(few, patience, rows, FEW_EVALUATIONS))
    limited = options.max_seconds is not None or "max_steps" in options.changed()
    evaluations = options.max_steps if limited else min(options.max_steps, FEW_EVALUATIONS)
    return ClimbSize(few, min(max(rows, ROWS_A_POINT * len(model.inducing)), len(x)), evaluations)


@dataclass
class CollapsedClimb(QuasiNewton):
    """One run of learning by the collapsed bound, from where the model is: :meth:`run`, then :meth:`polish` for q(u)."""

    model: CollapsedGP
    pace: float = 1.0  # seconds of this machine for one that was reckoned, of a pass over the data

    @property
    def size(self) -> ClimbSize:
        """The most draws, rows and evaluations."""
        return ClimbSize(self.most_samples, self._num_learned, self.max_steps or 0)

    def run(self, keeps_orbit: bool = False) -> Solution | CollapsedBound:
        """Climb to the top, or until the budget is spent. ``keeps_orbit``: the orbit stays as it is."""
        orbit, points = self.model.orbit, self.model.sparse.inducing
        fixed = list(orbit.parameters()) if keeps_orbit else []
        if points_are_best(orbit, len(points), len(self.x)):
            fixed.append(points)
        with held(fixed):
            self._learn_what_is_free()
            return super().run()

    def polish(self, rest: Rest) -> None:
        """With all else fixed, the best q(u): that on many fixed draws of the orbit, or as many as there is time for."""
        draws, local, sparse = None, None, self.model.sparse
        pass_over = sparse, self.likelihood, self.x, len(self.x)
        if self.likelihood.num_locals:
            with rest.timed(pass_seconds(*pass_over, self.model.num_samples)):
                local = self.objective.condition().local
        if not isinstance(self.model.orbit, FiniteOrbit):
            least = (self.model.num_samples or 1) / _POSTERIOR_DRAWS
            draws = int(_POSTERIOR_DRAWS * passes_within(*pass_over, _POSTERIOR_DRAWS, rest, least, most=1.0))
        with rest.timed(pass_seconds(*pass_over, draws)):
            CollapsedGP(sparse, self.x, draws).set_posterior(self.likelihood, self.y, local)

    def summary(self) -> str:
        """What happened, in words."""
        rows = len(self.x)
        of_rows = f", learned from {self._num_learned:,} of {rows:,} rows" if self._num_learned < rows else ""
        if self.converged:
            return f"The bound is at a top, after {self.steps:,} evaluations{of_rows}."
        kept = f"after {self.steps:,} evaluations{of_rows}; the best parameters so far are kept."
        return f"The run was stopped {kept}" if self.stopped else f"The run met its limit {kept} Raise the limit."

    def _described(self, value: float) -> Record:
        """The record of this moment. There is one climb, and its q(u) needs no blend."""
        record = super()._described(value)
        return {**{name: record[name] for name in record if name not in _OF_SEVERAL_CLIMBS}, "blend": 0.0}

    def _with_more_rows(self, top: Top | None, search: BestStart | None) -> list[Top]:
        """With all rows to learn from: first without the inducing points where a noise must rise, then with them."""
        points = self.model.sparse.inducing
        if points.requires_grad and any(parameter.requires_grad for parameter in self.likelihood.parameters()):
            with held([points]):
                self._learn_what_is_free()
                if self.learned.parameters:
                    top = self._stage(self._climb_learned, EARLY_SETTLED)
                    self.learned.set(top.vector)
            self._learn_what_is_free()
        return [self._stage(self._climb_learned)]

    def _climb_learned(self, enough: float | None = None) -> Top:
        """Climb from here with the rows that are learned from, until an iteration gains less than ``enough``."""
        with self.objective.subset(self._num_learned):
            return self._climb(self._enough(0.0) if enough is None else enough)

    def _condition(self) -> Solution | CollapsedBound:
        """The bound of the present rows. How long that takes tells the pace of the passes that follow."""
        start = time.perf_counter()
        found = super()._condition()
        took = time.perf_counter() - start
        self.pace = took / pass_seconds(self.model.sparse, self.likelihood, self.x, len(self.model.x), self.model.num_samples)
        return found

    def _measure_draws(self, solution: Solution | CollapsedBound) -> None:
        """What other draws change is not asked here: the bound is measured on fresh ones."""

    def _enough(self, noise: float) -> float:
        """Nats an iteration, below which a climb ends. Nothing finer is sought than a small part of the slack."""
        slack = self.model.slack(self.likelihood, self.objective.y, self.objective.known_local())
        return max(super()._enough(noise), _OF_SLACK * slack)

    def _learn_what_is_free(self) -> None:
        self.objective = ExactObjective(self.model, self.likelihood, self.y, self.objective.order)
        self.learned = self.objective.learned


@contextmanager
def held(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Learn none of these within this context."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
