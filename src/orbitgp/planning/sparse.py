"""How a sparse model learns, and what that costs at the nominal speed of the device.

It climbs the collapsed bound, as an exact model climbs its evidence. Stochastic steps are for data that one process
does not hold in memory, and for users who ask for them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import inf

from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.cost import Cost, Workload, covariances_and_turns, obstacle
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, MOST_DRAWS, Rung, rungs

SLOW_FIT_FACTOR = 4.0  # times an exact fit: what a run may take where nothing quicker is possible
SECONDS = SLOW_FIT_FACTOR * TrainerSettings.exact_seconds  # of stochastic steps, by default
CLIMB = 12  # evaluations of one climb, about
EVALUATIONS = 50  # of a bound with its last draws, that a climb takes at most: most evaluations have fewer draws
ROWS_A_POINT = 4  # that are learned from, or that a refit of q(u) sees, at least
MOST_PASSES = 8  # over all data, for the last q(u), and as many for its evidence


def climb(model: InvariantGP, likelihood: Likelihood, x: AllInputs, options: TrainerSettings) -> Rung | None:
    """The last rung of a climb of the collapsed bound, or None where the run takes stochastic steps.

    It has as many draws of the orbit as leave time and memory for a climb. Where even the fewest do not, it has fewer
    rows: q(u) is that of all rows in the end. A finite orbit is enumerated; ``climb_samples`` fixes others' draws.
    """
    if not isinstance(x, Tensor) or _needs_steps(len(x), options):
        return None
    seconds, memory = min(SLOW_FIT_FACTOR * options.exact_seconds, options.max_seconds or inf), free_memory(x.device)

    def fits(draws: int, rows: int) -> bool:
        cost = evaluation_cost(model, likelihood, x, draws, rows)
        return obstacle(replace(cost, seconds=EVALUATIONS * cost.seconds), seconds, memory) is None

    finite = isinstance(model.orbit, FiniteOrbit)
    fixed = model.orbit.size if isinstance(model.orbit, FiniteOrbit) else options.climb_samples
    numbers = (MOST_DRAWS, MOST_DRAWS // 2, LEAST_DRAWS, FIRST_DRAWS) if fixed is None else (fixed,)
    draws = next((number for number in numbers if fits(number, len(x))), numbers[-1])
    least = min(len(x), ROWS_A_POINT * len(model.inducing))
    more = bisect_left(range(least + 1, len(x) + 1), True, key=lambda rows: not fits(draws, rows))
    return Rung(least + more, None if finite else draws)


def most_evaluations(model: InvariantGP, likelihood: Likelihood, x: AllInputs, last: Rung) -> int:
    """As many evaluations of the bound as take ten minutes with the last draws, from 50 to 300."""
    each = evaluation_cost(model, likelihood, x, model.samples_per_row(last.draws), last.rows).seconds
    return min(max(EVALUATIONS, int(SECONDS / each)), TrainerSettings.max_steps)


def _needs_steps(rows: int, options: TrainerSettings) -> bool:
    """Whether only stochastic steps can do what is asked for, or the user asks to see parts of the data at a time."""
    changed = options.changed()
    parts = [getattr(options, name) for name in ("batch_size", "posterior_rows") if name in changed]
    asked = changed & {"learning_rate", "sampler", "local"} or min(parts, default=rows) < rows
    return bool(processes.count() > 1 or asked)


def evaluation_cost(model: InvariantGP, likelihood: Likelihood, x: AllInputs, samples: int, rows: int) -> Cost:
    """The collapsed bound of some rows, with some samples of each, and its gradient."""
    # A turn costs about as much as a covariance with its gradient.
    covariances = len(model.q_sqrt) * covariances_and_turns(likelihood)[1]
    work = Workload.of(model, likelihood, x, samples)
    return work.collapsed(rows, len(model.inducing), model.inducing_samples, covariances)


def pass_seconds(model: InvariantGP, likelihood: Likelihood, x: AllInputs, rows: int, samples: int | None) -> float:
    """One pass over some rows without a gradient, as for q(u) or a measure of the bound: a third of an evaluation."""
    return evaluation_cost(model, likelihood, x, model.samples_per_row(samples), rows).seconds / 3


def step_seconds(model: InvariantGP, likelihood: Likelihood, x: AllInputs, options: TrainerSettings) -> float:
    """One stochastic step: a refit of q(u) on many rows, and a gradient on a batch."""
    samples, batch = model.samples_per_row(options.num_samples), min(len(x), options.batch_size)
    rows, drawn = min(len(x), options.posterior_rows), options.posterior_samples or options.num_samples
    gradient = evaluation_cost(model, likelihood, x, samples, batch).seconds
    return gradient + pass_seconds(model, likelihood, x, rows, drawn)


def affordable_steps(
    model: InvariantGP, likelihood: Likelihood, x: AllInputs, options: TrainerSettings, free_steps: bool = False
) -> TrainerSettings:
    """The same with smaller steps, where a few hundred of them would take more than ten minutes or the limit of time.

    A refit of q(u) then sees fewer draws, and refits and gradients see fewer rows. Options the user set are not
    changed. ``free_steps``: there are as many steps as take ten minutes, from 300 to 3,000.
    """
    least_steps, rows = TrainerSettings.max_steps, len(x)
    free = {"posterior_samples", "posterior_rows", "batch_size"} - options.changed()
    least = {"posterior_rows": ROWS_A_POINT * len(model.inducing), "batch_size": TrainerSettings.batch_size // 4}

    def too_slow(options: TrainerSettings) -> bool:
        limit = min(SECONDS, options.max_seconds or SECONDS)
        return least_steps * step_seconds(model, likelihood, x, options) > limit

    if too_slow(options) and "posterior_samples" in free and options.num_samples is not None:
        options = replace(options, posterior_samples=min(options.num_samples, FIRST_DRAWS // 2))
    while too_slow(options):
        sizes = {name: min(rows, getattr(options, name)) for name in free & least.keys()}
        smaller = {name: max(least[name], size // 2) for name, size in sizes.items() if size > least[name]}
        if not smaller:
            break
        options = replace(options, **smaller)
    if free_steps:
        steps = int(SECONDS / step_seconds(model, likelihood, x, options))
        options = replace(options, max_steps=min(max(least_steps, steps), 10 * least_steps))
    return options


def learning_seconds(
    model: InvariantGP, likelihood: Likelihood, x: AllInputs, options: TrainerSettings, rung: Rung | None
) -> tuple[float, float]:
    """What the steps or the climb of a sparse run take, and what follows them: the last q(u), and its evidence.

    A climb seldom needs more than twice the least draws, and one with draws that are fixed is made twice.
    """
    problem = model, likelihood, x
    if rung is None:
        learning = options.max_steps * step_seconds(*problem, options)
    else:
        rises = rung.draws is not None and options.climb_samples is None
        usual = rungs(rung.rows, min(rung.draws or 0, 2 * LEAST_DRAWS), several=False)
        climbed = [one for one in usual if one.rows == rung.rows] if rises else 2 * [rung]
        draws = [model.samples_per_row(one.draws) for one in climbed]
        each = [evaluation_cost(*problem, number, rung.rows).seconds for number in draws]
        learning = min(CLIMB, options.max_steps / len(each)) * sum(each)
    return learning, min(10 * pass_seconds(*problem, len(x), options.num_samples), SECONDS / 2)
