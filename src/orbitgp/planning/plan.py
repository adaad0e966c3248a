"""The plan of a fit: exact or sparse, learned from how many rows, with which draws, and what it will take.

Exact inference is taken where it can be afforded. It learns from all rows, or from some of them where that is all that
time and memory allow, and conditions on all. The plan rests on sizes, free memory and the kind of device, and not on a
measured time or on the number of threads: the same data get the same plan on every day and in every worker process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.planning.cost import CONDITIONING, Workload, obstacle, workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import LEAST_DRAWS, LEAST_ROWS, MOST_CONTENDERS, SKETCH_ROWS, Rung, for_neighbours, rungs
from orbitgp.planning.sparse import CLIMB, EVALUATIONS, ROWS_A_POINT, SLOW_FIT_FACTOR

InferenceName = Literal["auto", "exact", "sparse"]

NUM_INDUCING = 256
INDUCING_SAMPLES = 8  # over which an inducing variable averages, or variables for each of few rows: more gain little
_SCORES = 1.3  # times what the climbs of an orbit take, with scores on fresh draws


@dataclass(frozen=True)
class Plan:
    """How a fit will go. ``print`` it.

    Attributes:
        inference: ``exact`` or ``sparse``.
        reason: why, in a few words.
        num_data: all rows, which the posterior is conditioned on.
        ladder: rows and draws of the climbs of exact inference, or of a sparse model that climbs its bound; the last
            rung is what the user gets. Empty where a sparse model takes stochastic steps.
        seconds: what the fit will take at the nominal speed of the device, about; None where that is not known.
        bytes: of memory at its peak, likewise.
        num_inducing: inducing points of a sparse model.
        max_steps, batch_size: of stochastic steps.
    """

    inference: Literal["exact", "sparse"]
    reason: str
    num_data: int
    ladder: tuple[Rung, ...] = ()
    seconds: float | None = None
    bytes: float | None = None
    num_inducing: int | None = None
    max_steps: int | None = None
    batch_size: int | None = None

    @property
    def learn_rows(self) -> int:
        """Rows that parameters are learned from."""
        return self.ladder[-1].rows if self.ladder else self.num_data

    @property
    def draws(self) -> int | None:
        """The most draws of an infinite orbit; None where the orbit is enumerated."""
        return self.ladder[-1].draws if self.ladder else None

    def __str__(self) -> str:
        lines = [f"{self.inference} inference of {self.num_data:,} rows: {self.reason}"]
        if self.num_inducing is not None:
            lines.append(f"{self.num_inducing:,} inducing points")
        if self.ladder:
            lines.append("climbs with " + ", ".join(str(rung) for rung in self.ladder))
        elif self.max_steps is not None:
            lines.append(f"at most {self.max_steps:,} stochastic steps of {self.batch_size:,} rows")
        if self.seconds is not None:
            lines.append(f"about {duration(self.seconds)} on a free machine")
        if self.bytes is not None:
            lines.append(f"{self.bytes / 1e9:.2g} GB of memory at its peak")
        return "\n  ".join(lines)


def make_plan(
    inference: InferenceName,
    likelihood: Likelihood,
    model: ExactGP,
    settings: TrainerSettings,
    num_samples: int | None = None,
    asks_for_sparse: bool = False,
) -> Plan:
    """The plan of a fit.

    Args:
        inference: as the user asked for it.
        likelihood, model: before the first step. Nothing is computed with them.
        settings: the options of the user, with the limit of time.
        num_samples: the draws that the user asked for.
        asks_for_sparse: whether the user gave a number that only sparse inference has.
    """
    rows = len(model.x)
    if inference == "sparse":
        return Plan("sparse", "inference='sparse'", rows)
    found: Plan | str = "num_inducing or batch_size was given"
    if inference == "exact" or not asks_for_sparse:
        work = workload(model, likelihood, num_samples)
        found = _exact_plan(work, model, settings, num_samples, inference == "exact")
    if isinstance(found, Plan):
        return found
    if inference == "exact":
        raise ValueError(f"exact inference is not possible: {found}. Use inference='sparse', or fewer data.")
    return Plan("sparse", found, rows)


def inducing_size(
    count: int | None, averaged: int | None, rows: int, orbit: Orbit, device: torch.device
) -> tuple[int, int]:
    """How many inducing points, and over how many orbit samples each averages; None where the user does not say.

    It averages over all elements of a finite orbit that is small, and no more. An average over all elements is f, so
    one point for each datum determines f. An average over fewer does not: more points than data tighten the bound, up
    to one for each element of a finite orbit. On a GPU there are up to four times as many points, if there are rows
    enough to learn them from. On one H200, 60,000 digits and affine maps in 60 s: 256 points -1,511,139 nats, 512
    -1,483,577, 1,024 -1,469,093.
    """
    elements = orbit.size if isinstance(orbit, FiniteOrbit) else math.inf
    if averaged is None:
        averaged = int(elements) if elements <= 4 * INDUCING_SAMPLES else INDUCING_SAMPLES
    averaged = int(min(averaged, elements))
    most = rows if averaged >= elements else rows * elements
    usual = NUM_INDUCING if device.type == "cpu" else min(max(NUM_INDUCING, rows // ROWS_A_POINT), 4 * NUM_INDUCING)
    # It takes several points to represent an average over an orbit; too few hide how far the orbit should reach.
    usual = min(usual, rows * max(1, INDUCING_SAMPLES // averaged))
    return int(min(count or usual, most)), averaged


def _exact_plan(
    work: Workload, model: ExactGP, settings: TrainerSettings, num_samples: int | None, forced: bool
) -> Plan | str:
    """Exact inference on all rows, or learned from some; or what stands against it.

    Where sparse inference would be slow, exact inference may take as long.
    """
    limit = settings.max_seconds or math.inf
    patience = SLOW_FIT_FACTOR * settings.exact_seconds
    found = _within(settings.exact_seconds, limit, work, model, num_samples, forced)
    if isinstance(found, Plan) or forced or _sparse_seconds(work, model, settings) <= patience:
        return found
    patient = _within(patience, limit, work, model, num_samples, forced)
    return patient if isinstance(patient, Plan) else found


def _sparse_seconds(work: Workload, model: ExactGP, settings: TrainerSettings) -> float:
    """What sparse inference would take on a CPU; a GPU is quick. It needs draws even where k_f has a closed form."""
    if model.x.device.type != "cpu":
        return 0.0
    rows, orbit = min(len(model.x), settings.posterior_rows), model.orbit
    drawn = work if isinstance(orbit, FiniteOrbit) else replace(work, samples=settings.climb_samples or LEAST_DRAWS)
    points = inducing_size(None, None, rows, orbit, model.x.device)
    return EVALUATIONS * drawn.collapsed(rows, *points, work.covariances).seconds


def _within(
    allowed: float, limit: float, work: Workload, model: ExactGP, num_samples: int | None, forced: bool
) -> Plan | str:
    """Exact inference in the time that is allowed, and within the limit of the user; or what stands against it.

    Where it is forced, conditioning may take any time. With a limit it may learn from fewer rows than otherwise: sparse
    inference, too, would have to begin with as few.
    """
    rows, memory, seconds = len(model.x), free_memory(model.x.device), min(allowed, limit)
    fixed = model.is_enumerated or num_samples is not None

    def planned(reason: str, work: Workload, learn_rows: int) -> Plan:
        draws = work.samples if fixed else work.most_samples(learn_rows, rows, seconds, memory)
        return _of_ladder(reason, work, model, learn_rows, draws, fixed, limit)

    learning = work.learning(rows)
    against = obstacle(learning, seconds, memory)
    if against is None:
        return planned("it can be afforded", work, rows)
    least, step = (LEAST_ROWS, 100) if math.isinf(limit) else (min(rows, SKETCH_ROWS), SKETCH_ROWS)
    for samples in (work.samples,) if fixed else (work.samples, work.samples // 2, work.samples // 4):
        fewer = replace(work, samples=samples)
        conditioning = fewer.conditioning(rows)
        blocked = obstacle(conditioning, math.inf if forced else CONDITIONING * seconds, memory)
        if blocked is not None:
            against = f"conditioning on all rows: {blocked}"
            continue
        learning_seconds = max(seconds - conditioning.seconds, (1 - CONDITIONING) * seconds)
        learn_rows = fewer.most_rows(learning_seconds, memory, rows, step)
        if learn_rows >= least:
            return planned(f"learned on {learn_rows:,} of {rows:,} rows, conditioned on all", fewer, learn_rows)
    if blocked is None:  # there is memory with the fewest draws, but no time to learn from enough rows
        against = obstacle(learning, seconds, math.inf) or against
    fits = obstacle(work.evaluation(rows), math.inf, memory) is None
    if rows > NUM_INDUCING or work.samples > LEAST_DRAWS or not fits:
        return against
    reason = "as many inducing points as data would save no time"
    if math.isinf(limit):
        return _of_ladder(reason, work, model, rows, work.samples, fixed, limit)
    return _of_ladder(f"{reason}, and {limit:.0f} s are too short", fewer, model, least, fewer.samples, fixed, limit)


def _of_ladder(reason: str, work: Workload, model: ExactGP, rows: int, draws: int, fixed: bool, limit: float) -> Plan:
    """An exact plan with its ladder, and what that costs."""
    drawn = None if model.is_enumerated else draws
    ladder = tuple(rungs(rows, drawn, several=True, fixed_draws=fixed))
    last = replace(work, samples=draws)
    conditioning = last.conditioning(len(model.x))
    seconds = conditioning.seconds + ladder_seconds(work, ladder, model.orbit)
    memory = max(last.evaluation(rows).bytes, conditioning.bytes)
    return Plan("exact", reason, len(model.x), ladder, min(seconds, limit), memory)


def ladder_seconds(work: Workload, ladder: Sequence[Rung], orbit: Orbit) -> float:
    """What the climbs of a ladder take: many candidates on the first rung, and fewer on the others.

    An orbit seldom needs more than the least draws for each reach. Climbs from the neighbours of the best have the
    least draws. The kernel alone climbs on the second rung. Scores of candidates on fresh draws, and plausible ranges,
    take a share of all that.
    """
    reaches = sum(reach.numel() for reach in orbit.reaches())
    seconds = 0.0 if not reaches else 3 * CLIMB * work.evaluation_seconds(ladder[:2][-1].rows, 1)
    for number, rung in enumerate(ladder):
        draws = rung.draws or 0
        if number and draws > LEAST_DRAWS * max(1, reaches):
            break
        climbs = min(MOST_CONTENDERS, max(1, reaches)) if draws <= LEAST_DRAWS else 1
        if number == 0:
            climbs = MOST_CONTENDERS + 2 * bool(draws) + 3 * len(orbit.simpler())
        elif rung == for_neighbours(ladder):
            climbs += reaches  # two neighbours, which take half of a climb each
        seconds += climbs * CLIMB * work.evaluation_seconds(rung.rows, rung.draws)
    return _SCORES * seconds if ladder[-1].draws else seconds


def duration(seconds: float) -> str:
    """As in "40 s", "4 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
