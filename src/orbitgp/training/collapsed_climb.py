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

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.cost import FIRST_SAMPLES, LEAST_SAMPLES, MOST_SAMPLES, Cost, affordable
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
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
from orbitgp.training.ladder import Ladder
from orbitgp.training.options import TrainerSettings
from orbitgp.training.rungs import rungs
from orbitgp.training.time_limit import TimeLeft, TimeLimit

_POSTERIOR_DRAWS = 512  # of an infinite orbit, that the last q(u) is made from
_FEW_DRAWS = 4  # where there is no time for more; more rows gain more
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


def collapsed_ladder(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Float[Tensor, "rows *features"],
    y: Float[Tensor, "rows *outputs"],
    options: TrainerSettings,
    size: ClimbSize,
    **watching: Any,
) -> Ladder:
    """The climb of a collapsed bound from where the model is; ``watching`` are callbacks and progress of the run.

    The noise that an exact start has found is too small for a bound with slack, and must rise before the inducing points have
    anything to say. So these stay where they are on the first rung.
    """
    finite = isinstance(model.orbit, FiniteOrbit)
    fixed = options.climb_samples is not None
    rising = rungs(size.rows, None if finite else size.draws, several=False, fixed_draws=fixed)
    learns_noise = any(parameter.requires_grad for parameter in likelihood.parameters())
    if model.inducing.requires_grad and learns_noise:
        rising = [rising[-1]._replace(draws=rising[0].draws, holds_points=True), *rising]
    return Ladder(
        model=CollapsedGP(model, x),
        likelihood=likelihood,
        x=x,
        y=y,
        rungs=[rung for rung in rising if rung.rows == size.rows],
        options=options,
        several=False,
        limit=TimeLimit(options.max_seconds),
        max_steps=size.evaluations,
        **watching,
    )


def set_last_posterior(climb: Ladder, rest: TimeLeft) -> None:
    """With all else fixed, the best q(u): that on many fixed draws of the orbit, or as many as there is time for."""
    collapsed, likelihood, x, y = climb.model, climb.likelihood, climb.x, climb.y
    assert isinstance(collapsed, CollapsedGP)
    draws, local, sparse = None, None, collapsed.sparse
    pass_over = sparse, likelihood, x, len(x)
    if likelihood.num_locals:
        with rest.timed(pass_seconds(*pass_over, collapsed.num_samples)):
            local = collapsed.condition(likelihood, y).local
    if not isinstance(collapsed.orbit, FiniteOrbit):
        least = (collapsed.num_samples or 1) / _POSTERIOR_DRAWS
        draws = int(_POSTERIOR_DRAWS * passes_within(*pass_over, _POSTERIOR_DRAWS, rest, least, most=1.0))
    with rest.timed(pass_seconds(*pass_over, draws)):
        CollapsedGP(sparse, x, draws).set_posterior(likelihood, y, local)


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
