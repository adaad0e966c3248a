"""The two ladders of a sparse run: the exact evidence of some rows, and the collapsed bound.

**The start.** The gradient of a stochastic run cannot escape a local optimum of the orbit's size, and takes many steps
to bring noise and lengthscale to their place. Some rows have an exact evidence, which is cheap and without noise. So
kernel, likelihood and orbit are first learned from these, by the ladder of exact inference. The bound has the more
slack the wider the orbit is, so it prefers narrow orbits. Where the likelihood is Gaussian in f, the evidence is exact,
and the run keeps the orbit that was found. Such an orbit is learned as exact inference would learn it, from as many
rows as an exact fit has time for. The start of another run takes a quarter of that.

**The collapsed bound.** With q(u) at its best in closed form and fixed draws of the orbit, the bound is a plain
function of kernel, likelihood, orbit and inducing points (:mod:`orbitgp.inference.collapsed`). A ladder climbs it where
every step can see all data (:mod:`orbitgp.planning.sparse`). Where that takes too long, it climbs the bound of some
rows, and the last q(u) is that of all.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.local_parameters import Setting
from orbitgp.inference.rows import fetch
from orbitgp.likelihoods import Gaussian
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.cost import Workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import ladder_seconds
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, MOST_DRAWS, SKETCH_ROWS, Rung, rungs
from orbitgp.planning.sparse import ROWS_A_POINT, pass_seconds
from orbitgp.planning.time_limit import TimeLeft, TimeLimit
from orbitgp.training.ladder import Ladder
from orbitgp.training.objective import representative_order

SHORTEST = 100  # steps of a run that chooses its start
_SHARE = 0.25  # of a limit, for the start; and of the time of an exact fit, if the orbit is learned by the bound later


def start_ladder(setting: Setting, options: TrainerSettings) -> Ladder:
    """The climb of the exact evidence of some rows. It shares kernel, likelihood, prior mean and orbit with the model.

    With a limit of time, it has as many rows as there is time for, and 50 at least. Without one, ``start_rows`` take as
    long as they take.
    """
    model, likelihood, x, y = setting
    orbit = model.orbit
    elements = min(orbit.size, FIRST_DRAWS) if isinstance(orbit, FiniteOrbit) else None
    learns_orbit = not likelihood.num_locals and any(parameter.requires_grad for parameter in orbit.parameters())
    samples = elements or (LEAST_DRAWS if learns_orbit else FIRST_DRAWS)
    work = Workload.of(model, likelihood, x, samples)
    # Processes that share the data must end at the same place, and have different clocks.
    limit = None if options.max_seconds is None or processes.count() > 1 else _SHARE * options.max_seconds
    seconds = min((1.0 if learns_orbit else _SHARE) * options.exact_seconds, limit or inf)
    memory = free_memory(x.device)
    least = options.start_rows if limit is None else SKETCH_ROWS
    count = max(work.most_rows(seconds, memory, len(x)), min(least, len(x)))
    most = work.most_samples(count, count, seconds, memory) if learns_orbit else samples
    rows = representative_order(y, options.seed)[:count].to(x.device)
    x, y = fetch(x, rows), y[rows]
    exact = ExactGP(model.kernel, orbit, x, model.num_latents, num_samples=elements, by_bound=True).to(x.device)
    exact.prior_mean = model.prior_mean
    ladder = rungs(count, None if exact.is_enumerated else most, several=True, fixed_draws=elements is not None)
    return Ladder(
        model=exact,
        likelihood=likelihood,
        x=x,
        y=y,
        rungs=ladder,
        options=options,
        limit=TimeLimit(limit, work=work if limit is None else None),  # progress is of the limit, or of the work
        planned=min(ladder_seconds(work, ladder, orbit), limit or inf),
    )


@torch.no_grad()
def raise_noise(setting: Setting, seed: int) -> None:
    """Multiply a learned Gaussian noise as long as the bound of some rows rises, at its best q(u).

    The noise that fits some rows exactly is too small for a bound with slack. It may even have run off to its least
    value, where it has no slope.
    """
    model, likelihood, x, y = setting
    learned = [part for part in likelihood.modules() if isinstance(part, Gaussian) and part.log_noise.requires_grad]
    if not learned:
        return
    rows = representative_order(y, seed)[: ROWS_A_POINT * len(model.inducing)].to(x.device)
    enumerates = isinstance(model.orbit, FiniteOrbit) and model.orbit.size <= FIRST_DRAWS
    collapsed, y = CollapsedGP(model, fetch(x, rows), None if enumerates else FIRST_DRAWS), y[rows]

    def bound() -> float:
        try:
            return collapsed.log_evidence(likelihood, y)
        except FloatingPointError:
            return -inf

    for part in learned:
        best, highest = part.log_noise.clone(), -inf
        while (found := bound()) > highest:
            best, highest = part.log_noise.clone(), found
            part.set_noise(4 * max(float(part.noise), part.min_noise))
        part.log_noise.copy_(best)


def collapsed_ladder(setting: Setting, options: TrainerSettings, last: Rung) -> Ladder:
    """The climb of a collapsed bound from where the model is to its last rung.

    A climb ends when it gains little in comparison with the slack, and the slack is large at the start of the first. So
    a rung that is alone is climbed twice.
    """
    model, likelihood, x, y = setting
    assert isinstance(x, Tensor)
    all_rungs = rungs(last.rows, last.draws, several=False, fixed_draws=options.climb_samples is not None)
    rising = [rung for rung in all_rungs if rung.rows == last.rows]
    return Ladder(
        model=CollapsedGP(model, x),
        likelihood=likelihood,
        x=x,
        y=y,
        rungs=rising if len(rising) > 1 else 2 * rising,
        options=options,
        several=False,
        limit=TimeLimit(options.max_seconds),
        max_steps=options.max_steps,
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
        least = (collapsed.num_samples or 1) / MOST_DRAWS
        within = rest.share() / pass_seconds(*pass_over, MOST_DRAWS)
        draws = int(MOST_DRAWS * min(max(least, within), 1.0))
    with rest.timed(pass_seconds(*pass_over, draws)):
        CollapsedGP(sparse, x, draws).set_posterior(likelihood, y, local)


def pace_of(climb: Ladder) -> float:
    """Measured over nominal seconds of a pass over the data, by the posterior that ended the climb; else infinite."""
    assert isinstance(climb.model, CollapsedGP)
    sparse, samples = climb.model.sparse, climb.model.num_samples
    return (climb.condition_seconds or inf) / pass_seconds(sparse, climb.likelihood, climb.x, climb.learn_rows, samples)
