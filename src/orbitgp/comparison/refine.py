"""Spending more where it decides: intervals of the evidence, and models that narrow them until the best is certain.

What the log evidence of an orbit, at its best hyperparameters, lies between:

- **Exact inference**: the value and two errors of its draws on either side, where training has converged. Expectation
  propagation lies below the log evidence, and adds twice as much at the upper end.
- **Sparse inference**: from the best bound upwards. The upper end has three parts. The bound lies ``slack`` below the
  evidence at the hyperparameters that were learned (:attr:`Evidence.upper`). Those are the best for the bound, not for
  the evidence: a loose bound misleads training. And training may have ended early. What the last two cost is seen from
  a second run with another seed, twice the steps and twice the inducing points: if the bound gained g nats while its
  slack fell from s to s', a nat of slack costs g / (s - s') nats, and s' is what is left of it. So the upper end is

      bound + s' max(2, g / (s - s')) + |g|,

  and infinite before there is a second run, where the last run has not converged, or where the bound rises and its
  slack does not fall.

While the best orbit cannot be told from another, the one of them with the widest interval is refined, if there is time:
by exact inference, or by twice the limits. None gets more draws: training adds these until they no longer matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, NamedTuple

import joblib
import torch

from orbitgp.comparison.parallel import Job, Trained, best_of
from orbitgp.comparison.verdict import Standing, leaders
from orbitgp.inference.model import InvariantGP
from orbitgp.orbits.description import listed
from orbitgp.planning.cost import Workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import NUM_INDUCING
from orbitgp.planning.rungs import LEAST_DRAWS

SHARE = 3.0  # times the seconds of the first models: what refining may take by default
LEAST_SECONDS = 20.0  # and never less than this
_REAL_GAIN = 3.0  # nats by which a second sparse run must be better to say what slack costs
_UNITS = {"num_inducing": "inducing points", "max_steps": "steps"}  # of what is doubled

Train = Callable[[Sequence[Job]], list[Trained]]


class Refinement(NamedTuple):
    """A model that would narrow an interval, and about how many seconds it takes. Its purpose says what it has more."""

    job: Job
    seconds: float


def standing(models: Sequence[Trained], rows: int, tried: int = 1) -> Standing:
    """What all models of one orbit, in the order of their training, say about its evidence."""
    best, further = best_of(models), refinement(models[-1], rows)
    exact, converged = best.model.inference_ == "exact", best.model.converged_
    low, high, reason = _ends_of_exact(best) if exact else _ends_of_sparse(models)
    if not exact and further is None:
        reason += "; more inducing points or steps are of no use to it"
    needs = "" if further is None else further.job.purpose
    learned = sum(parameter.numel() for parameter in best.job.orbit.parameters() if parameter.requires_grad)
    return Standing(best.job.name, best.evidence, low, high, reason, needs, converged, learned, tried)


def _ends_of_exact(trained: Trained) -> tuple[float, float, str]:
    """Both ends of the interval, and why it is as wide as it is."""
    evidence = trained.model.evidence_
    low, high = evidence.interval_of_best
    if not evidence.converged:
        return low, high, "its training met a limit"
    reason = "" if evidence.num_samples is None else f"{evidence.num_samples} draws stand for the orbit"
    if evidence.learned_from < evidence.num_data:
        reason = f"parameters were learned from {evidence.learned_from:,} of {evidence.num_data:,} rows"
    return low, high, reason


def _ends_of_sparse(models: Sequence[Trained]) -> tuple[float, float, str]:
    """The same from the runs of a sparse model: s, s' and g above are ``before``, ``after`` and ``gain``."""
    *earlier, last = models
    best = best_of(models)
    value, errors = best.evidence, 2 * best.model.evidence_.stderr
    if not earlier:
        return value - errors, inf, "one run does not say what more inducing points and steps gain"
    previous = best_of(earlier)
    gain, slack, before, after = last.evidence - previous.evidence, _slack(best), _slack(previous), _slack(last)
    if slack is None:  # the likelihood has no upper bound: what doubling gained is all that is known
        slack = 2 * abs(gain)
    high = value + 2 * slack + abs(gain)
    if gain > _REAL_GAIN and before is not None and after is not None:
        high = max(high, value + slack * gain / (before - after) + gain) if before > after else inf
    reason = f"its bound may be {slack:,.0f} nats loose, and gained {gain:,.0f} from the run before"
    if not last.model.converged_:  # two runs that end too early may agree, and say nothing about the optimum
        high, reason = inf, "its training met a limit"
    return value - errors, high + errors, reason


def _slack(trained: Trained) -> float | None:
    """Nats by which the bound may lie below the evidence at the same hyperparameters; None where that is not known."""
    evidence = trained.model.evidence_
    return evidence.slack if evidence.upper is None else max(evidence.upper - evidence.value, 0.0)


def refinement(trained: Trained, rows: int) -> Refinement | None:
    """The model that would narrow the interval of one that is trained. None where that could only repeat what is known.

    A model that is sparse because the user gave its size is followed by one without, which is exact where that is
    affordable. Else it gets twice the steps, twice the inducing points, up to one for each datum, and another seed. Any
    model that has not converged gets twice the limits that the user gave.
    """
    job, model, converged = trained.job, trained.model.model_, trained.model.converged_
    given = [name for name in ("max_steps", "max_seconds") if job.settings.get(name)]
    limits: dict[str, Any] = {} if converged else {name: 2 * job.settings[name] for name in given}
    seed, seconds = job.seed, 3 * trained.seconds
    if trained.model.inference_ == "sparse":
        assert isinstance(model, InvariantGP)
        free = dict.fromkeys(name for name in ("num_inducing", "batch_size") if job.settings.get(name))
        if free and not job.purpose and job.settings.get("inference", "auto") == "auto":
            device = torch.device(job.settings.get("device", "cpu"))
            dim = model.covariance.features(model.inducing.detach()[:1].flatten(1)).shape[-1]
            exact = Workload(getattr(job.orbit, "size", LEAST_DRAWS), dim, device).learning(rows).seconds
            if exact <= TrainerSettings.exact_seconds or rows <= NUM_INDUCING:
                return Refinement(replace(job, purpose="exact inference", settings={**job.settings, **free}), exact)
        points = len(model.inducing)
        grown = {"num_inducing": min(2 * points, rows)} if points < rows else {}
        if converged and job.purpose and not grown:
            return None
        taken = [record["step"] for record in getattr(trained.model, "history_", [])[-1:]]
        steps = 2 * int(job.settings.get("max_steps") or max([TrainerSettings.max_steps, *taken]))
        seed, limits = seed + 1, {**grown, "max_steps": steps, **limits}
    said = listed([f"{limit:,} {_UNITS[key]}" if key in _UNITS else "twice the time" for key, limit in limits.items()])
    again = replace(job, purpose=said, settings={**job.settings, **limits}, seed=seed)
    return Refinement(again, seconds) if limits else None


def train_and_refine(
    jobs: Sequence[Job],
    rows: int,
    train: Train,
    seconds: float | None = None,
    n_jobs: int | None = None,
    done: Sequence[Trained] = (),
) -> tuple[list[Standing], dict[str, list[Trained]]]:
    """Train a model for each orbit, then more where they decide, until the best orbit is certain or time is over.

    ``done`` are models that are trained already. Returns the standing of each orbit, and all models by orbit name.
    """
    models = {trained.job.name: [trained] for trained in (*train(jobs), *done)}
    if seconds is None:
        seconds = max(LEAST_SECONDS, SHARE * sum(first.seconds for (first,) in models.values()))
    workers = joblib.effective_n_jobs(n_jobs)
    while True:
        standings = [standing(row, rows, tried=len(models) - 1) for row in models.values()]
        found = [refinement(models[name][-1], rows) for name in undecided(standings)]
        more = [step.job for step in found if step is not None and step.seconds <= seconds]
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
    (best, *rivals), against = leaders(standings)
    doubtful = [rival for rival in rivals if against[rival.name].ends[1] > against[rival.name].needed]
    widths = {rival.name: (rival.width, rival.value) for rival in doubtful}
    if doubtful and all(isfinite(rival.width) for rival in doubtful):
        widths[best.name] = best.width if isfinite(best.width) else 0.0, best.value
    return sorted(widths, key=widths.__getitem__, reverse=True)
