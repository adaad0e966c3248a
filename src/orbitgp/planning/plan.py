"""The plan of a fit: exact or sparse, learned from how many rows, with which draws, and what it will take.

Exact inference is taken where it can be afforded. It learns from all rows, or from some of them where that is all that time and
memory allow, and conditions on all. The plan rests on sizes, free memory and the kind of device, and not on a measured time or
on the number of threads: the same data get the same plan on every day and in every worker process.
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
from orbitgp.planning.climb_size import ClimbSize, may_see_all
from orbitgp.planning.cost import CONDITIONING, Workload, affordable, workload
from orbitgp.planning.device_speed import nominal_seconds
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import FIRST_DRAWS, LEAST_DRAWS, LEAST_ROWS, Rung, rungs
from orbitgp.planning.sparse_cost import EVALUATIONS, PATIENCE, for_learning, most_inducing, seconds_on

InferenceName = Literal["auto", "exact", "sparse"]

NUM_INDUCING = 256
POINTS_PER_DATUM = 8  # of few data, to see its orbit; averages see several elements each, and are fewer
INDUCING_SAMPLES = 8  # over which each inducing variable averages: more gain little and cost as much again
INDUCING_ELEMENTS = 32  # inducing variables average over all elements of a finite orbit that has no more
_CANDIDATES = 4  # that climb the first rung, for each learned reach; and as many at most on later ones
_CLIMB = 12  # evaluations of one climb
_NEIGHBOURS = 2  # of the best, from which climbs begin at the end
_EVALUATION, _SETUP = 0.015, 0.5  # seconds of an evaluation and of a fit that do not depend on the size of the data


@dataclass(frozen=True)
class Plan:
    """How a fit will go. ``print`` it.

    Attributes:
        inference: ``exact`` or ``sparse``.
        reason: why, in a few words.
        num_data: all rows, which the posterior is conditioned on.
        ladder: rows and draws of the climbs of exact inference, or of a sparse model that climbs its bound; the last rung is
            what the user gets. Empty where a sparse model takes stochastic steps.
        seconds: what the fit will take at the nominal speed of the device, about; None where that is not known beforehand.
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
    if likelihood.couples:
        found: Plan | str = "the likelihood couples its latent functions"
    elif inference == "auto" and asks_for_sparse:
        found = "num_inducing or batch_size was given"
    else:
        found = _exact_plan(workload(model, likelihood, num_samples), model, settings, num_samples, inference == "exact")
    if isinstance(found, Plan):
        return found
    if inference == "exact":
        raise ValueError(f"exact inference is not possible: {found}. Use inference='sparse', or fewer data.")
    return Plan("sparse", found, rows)


def sparse_plan(plan: Plan, num_inducing: int, size: ClimbSize | None, settings: TrainerSettings, finite: bool) -> Plan:
    """The plan of a sparse fit, once its inducing points are known."""
    if size is None:
        return replace(plan, num_inducing=num_inducing, max_steps=settings.max_steps, batch_size=settings.batch_size)
    return replace(plan, num_inducing=num_inducing, ladder=(Rung(size.rows, None if finite else size.draws),))


def inducing_samples(asked: int | None, orbit: Orbit) -> int:
    """Over how many orbit samples each inducing variable averages: no more than a finite orbit has elements."""
    size = orbit.size if isinstance(orbit, FiniteOrbit) else None
    if asked is None:
        return size if size is not None and size <= INDUCING_ELEMENTS else INDUCING_SAMPLES
    return asked if size is None else min(asked, size)


def many_inducing(model: ExactGP, likelihood: Likelihood, settings: TrainerSettings) -> int | None:
    """On a GPU, how many inducing points there is time for, if more than usual; None for the usual number.

    Only where the bound of all rows is climbed: in the same time, stochastic steps with as many points come less far.
    """
    x, orbit = model.x, model.orbit
    if x.device.type == "cpu" or not may_see_all(likelihood, len(x), settings):
        return None
    work = _drawn(workload(model, likelihood, settings.climb_samples), orbit, settings)
    fixed = isinstance(orbit, FiniteOrbit) or settings.climb_samples is not None
    covariances = (1 if likelihood.shares_curvature else likelihood.num_latents) * work.turns
    averaged, limit = inducing_samples(settings.inducing_samples, orbit), seconds_on(x.device, for_learning(settings))
    early = work.samples if fixed else FIRST_DRAWS
    return most_inducing(work, early, len(x), averaged, covariances, limit, free_memory(x.device))


def _exact_plan(work: Workload, model: ExactGP, settings: TrainerSettings, num_samples: int | None, forced: bool) -> Plan | str:
    """Exact inference on all rows, or learned from some; or what stands against it.

    Where sparse inference would be slow, exact inference may take as long.
    """
    if forced:
        return _within(settings.exact_seconds, work, model, num_samples, forced)
    limit = nominal_seconds(settings.max_seconds or math.inf, model.x.device)
    found = _within(min(settings.exact_seconds, limit), work, model, num_samples, forced)
    patience = PATIENCE * settings.exact_seconds
    if isinstance(found, str) and _sparse_seconds(work, model, settings) > patience:
        patient = _within(min(patience, limit), work, model, num_samples, forced)
        return patient if isinstance(patient, Plan) else found
    return found


def _sparse_seconds(work: Workload, model: ExactGP, settings: TrainerSettings) -> float:
    """What sparse inference would take on a CPU. Its stochastic steps see no more rows at a time; a GPU makes them quickly."""
    if model.x.device.type != "cpu":
        return 0.0
    rows = min(len(model.x), settings.posterior_rows)
    cost = _drawn(work, model.orbit, settings).collapsed(
        rows, min(NUM_INDUCING, rows), inducing_samples(None, model.orbit), work.covariances
    )
    return EVALUATIONS * cost.seconds


def _drawn(work: Workload, orbit: Orbit, settings: TrainerSettings) -> Workload:
    """The same with draws of an infinite orbit, which sparse inference needs even where k_f has a closed form."""
    return work if isinstance(orbit, FiniteOrbit) else replace(work, samples=settings.climb_samples or LEAST_DRAWS)


def _within(seconds: float, work: Workload, model: ExactGP, num_samples: int | None, forced: bool) -> Plan | str:
    """Exact inference in this time, or what stands against it. Where it is forced, conditioning may take any time."""
    rows, memory = len(model.x), free_memory(model.x.device)
    fixed = model.is_enumerated or num_samples is not None
    learning = work.learning(rows)
    against = affordable(learning, seconds, memory)
    if against is None:
        draws = work.samples if fixed else work.most_samples(rows, rows, seconds, memory)
        return _of_ladder("it can be afforded", work, model, rows, draws, fixed)
    for samples in (work.samples,) if fixed else (work.samples, work.samples // 2, work.samples // 4):
        fewer = replace(work, samples=samples)
        conditioning = fewer.conditioning(rows)
        if affordable(conditioning, math.inf if forced else CONDITIONING * seconds, memory) is not None:
            continue
        learn_rows = fewer.most_rows(max(seconds - conditioning.seconds, (1 - CONDITIONING) * seconds), memory, rows)
        if learn_rows >= LEAST_ROWS:
            reason = f"learned on {learn_rows:,} of {rows:,} rows, conditioned on all"
            draws = samples if fixed else fewer.most_samples(learn_rows, rows, seconds, memory)
            return _of_ladder(reason, fewer, model, learn_rows, draws, fixed)
    if affordable(conditioning, math.inf, memory) is None:  # with the fewest draws there is memory, but no time
        against = affordable(learning, seconds, math.inf) or against
    enough_memory = affordable(work.evaluation(rows), math.inf, memory) is None
    if enough_memory and rows <= NUM_INDUCING and work.samples <= LEAST_DRAWS:
        return _of_ladder("as many inducing points as data would save no time", work, model, rows, work.samples, fixed)
    return against


def _of_ladder(reason: str, work: Workload, model: ExactGP, rows: int, draws: int, fixed: bool) -> Plan:
    """An exact plan with its ladder, and what that costs."""
    drawn = None if model.is_enumerated else draws
    ladder = tuple(rungs(rows, drawn, several=True, fixed_draws=fixed))
    last = replace(work, samples=draws)
    conditioning = last.conditioning(len(model.x))
    seconds = conditioning.seconds + _ladder_seconds(work, ladder, model.orbit)
    memory = max(last.evaluation(rows).bytes, conditioning.bytes)
    return Plan("exact", reason, len(model.x), ladder, seconds, memory)


def _ladder_seconds(work: Workload, ladder: Sequence[Rung], orbit: Orbit) -> float:
    """What the climbs of a ladder take: many candidates on the first rung, and fewer on the others.

    An orbit with one reach seldom needs more than the least draws; one with several may need all. Neighbours have the least.
    """
    reaches = sum(reach.numel() for reach in orbit.reaches())
    seconds = _SETUP
    for number, rung in enumerate(ladder):
        draws = rung.draws or 0
        if draws > LEAST_DRAWS and number and reaches < 2:
            break
        climbs = min(_CANDIDATES, max(1, reaches)) if draws <= LEAST_DRAWS else 1
        if number == 0:
            climbs = _CANDIDATES * max(1, reaches)
        elif draws == LEAST_DRAWS:
            climbs += _NEIGHBOURS
        sized = work if rung.draws is None else replace(work, samples=draws)
        seconds += climbs * _CLIMB * (sized.evaluation(rung.rows).seconds + _EVALUATION)
    return seconds


def exact_seconds(
    rows: int,
    dim: int,
    orbit: Orbit,
    device: torch.device,
    num_samples: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
) -> float | None:
    """What an exact fit of images or tables of this size takes with this orbit; None where it would be sparse by default."""
    work = Workload(getattr(orbit, "size", num_samples or LEAST_DRAWS), dim, device)
    options = TrainerSettings()
    if work.learning(rows).seconds > options.exact_seconds and rows > NUM_INDUCING:
        return None
    drawn = None if isinstance(orbit, FiniteOrbit) else num_samples or work.most_samples(rows, rows, options.exact_seconds)
    ladder = rungs(rows, drawn, several=True, fixed_draws=num_samples is not None)
    steps = (max_steps or math.inf) * (work.evaluation(rows).seconds + _EVALUATION)
    return min(_ladder_seconds(work, ladder, orbit), steps, max_seconds or math.inf)


def duration(seconds: float) -> str:
    """As in "40 s", "4 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
