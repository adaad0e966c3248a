"""How a sparse model learns: by climbing the collapsed bound where every step can see all data, else by stochastic steps."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import inf
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.cost import Cost, affordable
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, MOST_DRAWS
from orbitgp.planning.sparse_cost import (
    EVALUATIONS,
    FEW_EVALUATIONS,
    PATIENCE,
    ROWS_A_POINT,
    evaluation_cost,
    seconds_on,
    short_climb,
    step_seconds,
)

_FEW_DRAWS = 4  # where there is no time for more; more rows gain more
# Options that only stochastic steps have: who sets one of them asks for such steps.
_STOCHASTIC = {
    "learning_rate",
    "sampler",
    "local",
}


class ClimbSize(NamedTuple):
    """How the collapsed bound is climbed: with how many draws of the orbit, of how many rows, and how often, all at most."""

    draws: int
    rows: int
    evaluations: int


def may_see_all(likelihood: Likelihood, rows: int, options: TrainerSettings) -> bool:
    """Whether every step may see all data: nobody asks for parts of them, or for something that only stochastic steps have."""
    if likelihood.couples or processes.count() > 1 or options.changed() & _STOCHASTIC:
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
        numbers = (MOST_DRAWS, MOST_DRAWS // 2, LEAST_DRAWS)
    if x.device.type != "cpu":  # on a GPU, steps are in a lower precision than a climb can be
        found = next((samples for samples in numbers if fits(samples, options.exact_seconds)), None)
        most, early = numbers[-1], FIRST_DRAWS if len(numbers) > 1 else numbers[-1]
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
        few = FIRST_DRAWS if likelihood.num_locals else _FEW_DRAWS
    rows = bisect_left(range(1, len(x) + 1), True, key=lambda rows: not fits(few, patience, rows, FEW_EVALUATIONS))
    limited = options.max_seconds is not None or "max_steps" in options.changed()
    evaluations = options.max_steps if limited else min(options.max_steps, FEW_EVALUATIONS)
    return ClimbSize(few, min(max(rows, ROWS_A_POINT * len(model.inducing)), len(x)), evaluations)
