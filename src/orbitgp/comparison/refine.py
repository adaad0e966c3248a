"""Spending more where it decides: intervals of the evidence, and the models that narrow them until the best orbit is certain.

What the log evidence of an orbit, at its best hyperparameters, lies between:

- **Exact inference**: the value and two errors of its draws on either side, where training has converged. Expectation
  propagation lies below the log evidence, and adds twice as much at the upper end.
- **Sparse inference**: from the best bound upwards. The upper end has three parts. The bound lies ``slack`` below the evidence
  at the hyperparameters that were learned (:attr:`Evidence.upper`). Those are the best for the bound, not for the evidence: a
  loose bound misleads training. And training may have ended early. What the last two cost is seen from a second run with
  another seed, twice the steps and twice the inducing points (or averages over twice the samples, where there is a point for
  each datum): if the bound gained g nats while its slack fell from s to s', a nat of slack costs g / (s - s') nats, and s' is
  what is left of it. So the upper end is

      bound + s' max(2, g / (s - s')) + |g|,

  and infinite before there is a second run, where the last run has not converged, or where the bound rises and its slack does
  not fall.

While the best orbit cannot be told from another, the one of them with the widest interval is refined, if there is time. A
sparse model gets more inducing points and steps, or exact inference where that is cheaper. A model that met a limit of the
user's gets twice the limit. None gets more draws: training adds these until they no longer matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

import joblib
import torch

from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.verdict import Difference, Standing, ranked
from orbitgp.inference.model import InvariantGP
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.orbits.description import listed
from orbitgp.planning.cost import Workload, affordable
from orbitgp.planning.options import TrainerSettings, TrainingOptions
from orbitgp.planning.plan import POINTS_PER_DATUM
from orbitgp.planning.rungs import LEAST_DRAWS

SHARE = 3.0  # times the seconds of the first models: what refining may take by default
LEAST_SECONDS = 20.0  # and never less than this
MOST_AVERAGED = 64  # samples over which an inducing variable averages
_REAL_GAIN = 3.0  # nats by which a second sparse run must be better to say what slack costs
_UNITS = {"max_steps": "steps", "max_seconds": "seconds"}  # of the limits that a user may set

Train = Callable[[Sequence[Job]], list[Trained]]


@dataclass(frozen=True)
class Refinement:
    """A model that would narrow an interval, what it is in words, and about how many seconds it takes: infinitely many where
    there is no memory for it."""

    job: Job
    words: str
    seconds: float


def standing(models: Sequence[Trained], rows: int) -> Standing:
    """What all models of one orbit, in the order of their training, say about its evidence."""
    last = models[-1]
    found = _of_exact(last) if last.model.inference_ == "exact" else _of_sparse(models)
    further = refinements(last, rows)
    if last.model.inference_ == "sparse" and not any(isfinite(step.seconds) for step in further):
        found = replace(found, reason=f"{found.reason}; more inducing points or steps are of no use to it")
    needs = ", or ".join(step.words for step in further) + "," * (len(further) > 1)
    learned = sum(parameter.numel() for parameter in last.job.orbit.parameters() if parameter.requires_grad)
    return replace(found, needs=needs, learned=learned)


def _of_exact(trained: Trained) -> Standing:
    name, evidence = trained.job.name, trained.model.evidence_
    low, high = evidence.interval
    if not trained.model.converged_:
        return Standing(name, evidence.value, low, inf, "its training met a limit", converged=False)
    reason = "" if evidence.num_samples is None else f"{evidence.num_samples} draws stand for the orbit"
    if evidence.learned_from < evidence.num_data:
        reason = f"parameters were learned from {evidence.learned_from:,} of {evidence.num_data:,} rows"
    return Standing(name, evidence.value, low, high + evidence.shortfall, reason)


def _of_sparse(models: Sequence[Trained]) -> Standing:
    *earlier, last = models
    best = max(models, key=lambda trained: trained.evidence)
    name, value, low, converged = best.job.name, best.evidence, best.evidence - 2 * best.stderr, best.model.converged_
    if not earlier:
        reason = "one run does not say what more inducing points and steps gain"
        return Standing(name, value, low, inf, reason, converged=converged)
    previous = max(earlier, key=lambda trained: trained.evidence)
    gain, slack, before, after = last.evidence - previous.evidence, _slack(best), _slack(previous), _slack(last)
    if slack is None:  # the likelihood has no upper bound: what doubling gained is all that is known
        slack = 2 * abs(gain)
    high = value + 2 * slack + abs(gain)
    if gain > _REAL_GAIN and before is not None and after is not None:
        high = max(high, value + slack * gain / (before - after) + gain) if before > after else inf
    reason = f"its bound may be {slack:,.0f} nats loose, and gained {gain:,.0f} from the run before"
    if not last.model.converged_:  # two runs that end too early may agree, and say nothing about the top
        high, reason = inf, "its training met a limit"
    return Standing(name, value, low, high + 2 * best.stderr, reason, converged=converged)


def _slack(trained: Trained) -> float | None:
    """Nats by which the bound may lie below the evidence at the same hyperparameters; None where that is not known."""
    evidence = trained.model.evidence_
    return evidence.slack if evidence.upper is None else max(evidence.upper - trained.evidence, 0.0)


def refinements(trained: Trained, rows: int) -> list[Refinement]:
    """The models that would narrow the interval of one that is trained, the quickest first."""
    if trained.model.inference_ == "exact":
        longer = _doubled_limits(trained)
        return [_changed(trained, "more steps", listed(_words(longer)), {"inference": "exact", **longer})] if longer else []
    found = [_larger(trained, rows), _exact(trained, rows)]
    return sorted((step for step in found if step is not None), key=lambda step: step.seconds)


def _larger(trained: Trained, rows: int) -> Refinement | None:
    """Twice the inducing points and steps, with another seed. None where that could only repeat what is known.

    Inducing points are added as far as the orbits of the data have use for them: of averages, one for each datum. Then these
    average over twice the samples: another run of the same size does not show what its slack costs. A model that cannot grow
    is trained a second time, since nothing is known of its upper end before; then only more steps may help.
    """
    job, model, converged = trained.job, trained.model.model_, trained.model.converged_
    assert isinstance(model, InvariantGP)
    points, averaged = len(model.inducing), model.inducing_samples
    finite = job.orbit.size if isinstance(job.orbit, FiniteOrbit) else None
    more = max(points, min(2 * points, rows * (finite or POINTS_PER_DATUM) if averaged == 1 else rows))
    taken = [record["step"] for record in getattr(trained.model, "history_", [])[-1:]]
    steps = 2 * int(job.settings.get("max_steps") or max([TrainerSettings.max_steps, *taken]))
    limits = {"max_steps": steps, **_doubled_limits(trained)}
    changed, words = {"num_inducing": more, **limits}, _words(limits)
    if more > points:
        purpose, words = "more inducing points", [f"{more:,} inducing points", *words]
    elif 1 < averaged < (finite or MOST_AVERAGED) and 2 * averaged <= MOST_AVERAGED:
        purpose, words = "wider inducing averages", [f"inducing averages over {2 * averaged} samples", *words]
        options: TrainingOptions = job.settings.get("training") or TrainingOptions()
        changed["training"] = options.set_params(inducing_samples=2 * averaged)
    elif not converged:
        purpose = "more steps"
    elif not job.purpose:
        purpose, words = "a second run", ["a second run"]
    else:
        return None
    return _changed(trained, purpose, listed(words), changed, seed=job.seed + 1)


def _doubled_limits(trained: Trained) -> dict[str, Any]:
    """Twice what the user allows, where training ended with that."""
    given = {} if trained.model.converged_ else trained.job.settings
    return {name: 2 * given[name] for name in _UNITS if given.get(name)}


def _words(limits: dict[str, Any]) -> list[str]:
    return [f"{limit:,.10g} {_UNITS[name]}" for name, limit in limits.items()]


def _changed(trained: Trained, purpose: str, words: str, settings: dict[str, Any], **further: Any) -> Refinement:
    """Another model of the same orbit. It takes about three times as long as the last."""
    job = replace(trained.job, purpose=purpose, settings={**trained.job.settings, **settings}, **further)
    return Refinement(job, words, 3 * trained.seconds)


def _exact(trained: Trained, rows: int) -> Refinement | None:
    """Exact inference, where the user left the choice open and the likelihood allows it."""
    job, model, likelihood = trained.job, trained.model.model_, trained.model.likelihood_
    if job.settings.get("inference", "auto") != "auto" or likelihood.couples:
        return None
    assert isinstance(model, InvariantGP)
    draws = job.orbit.size if isinstance(job.orbit, FiniteOrbit) else LEAST_DRAWS
    device, dim = torch.device(job.settings.get("device", "cpu")), model.covariance.num_features(model.inducing)
    cost = Workload.of(likelihood, draws, dim, device, model.dtype == torch.float64).learning(rows)
    step = _changed(trained, "exact inference", "exact inference", {"inference": "exact"})
    if affordable(cost, inf, free_memory(device)) is not None:
        return replace(step, words=f"{cost.bytes / 1e9:,.0f} GB for exact inference", seconds=inf)
    return replace(step, seconds=cost.seconds)


def train_and_refine(
    jobs: Sequence[Job], rows: int, train: Train, seconds: float | None = None, n_jobs: int | None = None
) -> tuple[list[Standing], dict[str, list[Trained]]]:
    """Train a model for each orbit, then more where they decide, until the best orbit is certain or ``seconds`` are over.

    Returns the standing of each orbit, and all models by the name of their orbit.
    """
    models = {trained.job.name: [trained] for trained in train(jobs)}
    if seconds is None:
        seconds = max(LEAST_SECONDS, SHARE * sum(first.seconds for (first,) in models.values()))
    workers = 1 if n_jobs == 1 else int(joblib.effective_n_jobs(n_jobs))
    while True:
        standings = [replace(standing(row, rows), tried=max(1, len(jobs) - 1)) for row in models.values()]
        quickest = [step for name in undecided(standings) for step in refinements(models[name][-1], rows)[:1]]
        more = [step.job for step in quickest if step.seconds <= seconds]
        if not more:
            return standings, models
        further = train(more[:workers])
        seconds -= max(trained.seconds for trained in further)
        for trained in further:
            models[trained.job.name].append(trained)


def undecided(standings: Sequence[Standing]) -> list[str]:
    """The orbits that might be the best and whose evidence is not known well enough, the widest interval first.

    The best needs no upper end, and a rival without one cannot be beaten: then the best waits.
    """
    best, *others = ranked(standings)
    rivals = [Difference(best, other) for other in others]
    doubtful = [rival.worse for rival in rivals if not rival.certain and not rival.next_to_nothing]
    widths = {rival.name: (rival.width, rival.value) for rival in doubtful}
    if doubtful and all(isfinite(rival.width) for rival in doubtful):
        widths[best.name] = best.width if isfinite(best.width) else 0.0, best.value
    return sorted(widths, key=widths.__getitem__, reverse=True)
