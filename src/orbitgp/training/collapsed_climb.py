"""Learning by the collapsed bound: the sparse model of few data climbs to a top, without noise and without learning rates.

With q(u) at its best in closed form and fixed draws of the orbit, the bound is a plain function of kernel, likelihood, orbit
and inducing points (:mod:`orbitgp.inference.collapsed`). It is climbed as the exact evidence is, with more and more draws.
First the inducing points stay where they are: the noise that an exact start has found is too small for a bound with slack, and
must rise before the points have anything to say. Thousands of inducing coordinates gain a little for hundreds of evaluations: a
climb ends where that is next to nothing beside the slack of the bound.

This is how a sparse run learns where all data can be seen in every step. Where they are too many, where the likelihood couples
its latent functions, or where an option was set that only stochastic steps have, it takes stochastic steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedBound, CollapsedGP
from orbitgp.inference.cost import LEAST_SAMPLES, MOST_SAMPLES, affordable, free_memory
from orbitgp.inference.exact import Solution
from orbitgp.inference.inducing_points import points_are_best
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import Rows
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit
from orbitgp.training.best_start import EARLY_SETTLED, BestStart
from orbitgp.training.budget import PATIENCE, evaluation_cost, passes_within, step_seconds
from orbitgp.training.climb import Top
from orbitgp.training.diagnostics import Record
from orbitgp.training.objective import ExactObjective
from orbitgp.training.options import TrainerSettings
from orbitgp.training.quasi_newton import QuasiNewton

_POSTERIOR_DRAWS = 512  # of an infinite orbit, that the last q(u) is made from
_EVALUATIONS = 100  # that a run takes, about
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


def most_draws(
    model: InvariantGP, likelihood: Likelihood, x: Float[Tensor, "rows *features"] | Rows, options: TrainerSettings
) -> int | None:
    """The most draws of the orbit with which a run can climb the collapsed bound; None where it cannot.

    A finite orbit is enumerated, and ``climb_samples`` fixes the draws of another. About a hundred evaluations of the bound
    may take as long as an exact fit may, or as the stochastic steps that they replace. On a CPU, a climb with the fewest draws
    may take four times as long as an exact fit: in the same time, stochastic steps come less far.
    """
    if not isinstance(x, Tensor) or processes.count() > 1 or options.optimizer != "natural":
        return None
    if likelihood.couples or options.changed() & _STOCHASTIC:
        return None
    fewest = [getattr(options, name) for name in ("batch_size", "posterior_rows") if name in options.changed()]
    if min(fewest, default=len(x)) < len(x):  # the user asks for parts of the data
        return None

    def can_be_afforded(samples: int, seconds: float) -> bool:
        cost = evaluation_cost(model, likelihood, x, samples, len(x))
        run = replace(cost, seconds=_EVALUATIONS * cost.seconds)
        return affordable(run, seconds, free_memory(x.device)) is None

    seconds = options.exact_seconds
    if x.device.type == "cpu":  # on a GPU, steps are in a lower precision than a climb can be
        seconds = max(seconds, options.max_steps * step_seconds(model, likelihood, x, options))

    if isinstance(model.orbit, FiniteOrbit):
        numbers: tuple[int, ...] = (model.orbit.size,)
    elif options.climb_samples is not None:
        numbers = (options.climb_samples,)
    else:
        numbers = (MOST_SAMPLES, MOST_SAMPLES // 2, LEAST_SAMPLES)
    found = next((samples for samples in numbers if can_be_afforded(samples, seconds)), None)
    if found is None and x.device.type == "cpu" and can_be_afforded(numbers[-1], PATIENCE * options.exact_seconds):
        return numbers[-1]
    return found


@dataclass
class CollapsedClimb(QuasiNewton):
    """One run of learning by the collapsed bound, from where the model is: :meth:`run`, then :meth:`polish` for q(u)."""

    model: CollapsedGP

    def run(self, keeps_orbit: bool = False) -> Solution | CollapsedBound:
        """Climb to the top, or until the budget is spent. ``keeps_orbit``: the orbit stays as it is."""
        orbit, points = self.model.orbit, self.model.sparse.inducing
        fixed = list(orbit.parameters()) if keeps_orbit else []
        if points_are_best(orbit, len(points), len(self.x)):
            fixed.append(points)
        with held(fixed):
            self._learn_what_is_free()
            return super().run()

    def polish(self) -> None:
        """With all else fixed, the best q(u): that on many fixed draws of the orbit, or as many as there is time for."""
        draws, sparse = None, self.model.sparse
        if not isinstance(self.model.orbit, FiniteOrbit):
            least = (self.model.num_samples or 1) / _POSTERIOR_DRAWS
            whole = passes_within(sparse, self.likelihood, self.x, _POSTERIOR_DRAWS, self.options, least, most=1.0)
            draws = int(_POSTERIOR_DRAWS * whole)
        local = self.objective.condition().local if self.likelihood.num_locals else None
        CollapsedGP(sparse, self.x, draws).set_posterior(self.likelihood, self.y, local)

    def summary(self) -> str:
        """What happened, in words."""
        if self.converged:
            return f"The bound is at a top, after {self.steps:,} evaluations."
        if self.stopped:
            return f"The run was stopped after {self.steps:,} evaluations; the best parameters so far are kept."
        return f"The run met its limit after {self.steps:,} evaluations; the best parameters so far are kept. Raise the limit."

    def _described(self, value: float) -> Record:
        """The record of this moment. There is one climb, and its q(u) needs no blend."""
        record = super()._described(value)
        return {**{name: record[name] for name in record if name not in _OF_SEVERAL_CLIMBS}, "blend": 0.0}

    def _with_more_rows(self, top: Top | None, search: BestStart | None) -> list[Top]:
        """With all rows: first without the inducing points where a noise must rise, then with them."""
        points = self.model.sparse.inducing
        if points.requires_grad and any(parameter.requires_grad for parameter in self.likelihood.parameters()):
            with held([points]):
                self._learn_what_is_free()
                if self.learned.parameters:
                    top = self._stage(self._climb, EARLY_SETTLED)
                    self.learned.set(top.vector)
            self._learn_what_is_free()
        return [self._stage(self._climb, self._enough(0.0))]

    def _enough(self, noise: float) -> float:
        """Nats an iteration, below which a climb ends. Nothing finer is sought than a small part of the slack."""
        return max(super()._enough(noise), _OF_SLACK * self.model.slack(self.likelihood, self.y, self.objective.known_local()))

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
