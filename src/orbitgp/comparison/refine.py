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
  not fall. A model that has converged and has no use for more points or wider averages is trained a second time at its size,
  and then no more: another run would only repeat what is known.

While the best orbit cannot be told from another, the one of them with the widest interval is refined, if there is time: more
inducing points and steps, or exact inference where that is cheaper; where inference is exact, more draws from where the last
run has ended, and more steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, log
from typing import Any

import joblib
import torch
from torch import Tensor

from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.verdict import Difference, Standing, ranked
from orbitgp.inference.model import InvariantGP
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.cost import Cost, Workload, affordable
from orbitgp.planning.options import TrainerSettings, TrainingOptions
from orbitgp.planning.plan import POINTS_PER_DATUM
from orbitgp.planning.rungs import LEAST_DRAWS
from orbitgp.training.learned_vector import learned_by

SHARE = 3.0  # times the seconds of the first models: what refining may take by default
LEAST_SECONDS = 20.0  # and never less than this
MOST_DRAWS = 512  # of an infinite orbit
MORE_DRAWS = "more draws"  # what a job is for
_TWICE_THE_DRAWS = 2.0  # times the seconds of a run from several starts: what a climb from its end with twice the draws takes
_REAL_GAIN = 3.0  # nats by which a second sparse run must be better to say what slack costs
MOST_AVERAGED = 64  # samples over which an inducing variable averages

Train = Callable[[Sequence[Job]], list[Trained]]


@dataclass(frozen=True)
class Refinement:
    """A model that would narrow an interval, what it is in words, and about how many seconds it takes."""

    job: Job
    words: str
    seconds: float


def standing(models: Sequence[Trained], rows: int) -> Standing:
    """What all models of one orbit, in the order of their training, say about its evidence."""
    last = models[-1]
    learned = sum(parameter.numel() for parameter in last.job.orbit.parameters() if parameter.requires_grad)
    refinement = next_refinement(last, rows)
    needs = [] if refinement is None else [refinement.words]
    if last.model.inference_ == "exact":
        return replace(_of_exact(models), needs="".join(needs), learned=learned)
    found = _of_sparse([model for model in models if model.model.inference_ == "sparse"])
    if refinement is None:
        found = replace(found, reason=f"{found.reason}; more inducing points or steps are of no use to it")
    cost = _exact_cost(last, rows)
    if cost is not None and not _fits(cost, last.job):
        needs.append(f"{cost.bytes / 1e9:,.0f} GB for exact inference")
    return replace(found, needs=", or ".join(needs) + ("," if len(needs) > 1 else ""), learned=learned)


def _of_exact(models: Sequence[Trained]) -> Standing:
    trained = models[-1]
    name, evidence = trained.job.name, trained.model.evidence_
    low, high = evidence.interval
    if not trained.model.converged_:
        return Standing(name, evidence.value, low, inf, "its training met a limit", converged=False)
    draws = evidence.num_samples
    reason = "" if draws is None else f"{draws} draws stand for the orbit"
    if evidence.learned_from < evidence.num_data:
        reason = f"parameters were learned from {evidence.learned_from:,} of {evidence.num_data:,} rows"
    return Standing(name, evidence.value, low, high + evidence.shortfall, reason)


def _of_sparse(models: Sequence[Trained]) -> Standing:
    best = max(models, key=lambda trained: trained.evidence)
    name, value, low = best.job.name, best.evidence, best.evidence - 2 * best.stderr
    if len(models) == 1:
        reason = "one run does not say what more inducing points and steps gain"
        return Standing(name, value, low, inf, reason, converged=best.model.converged_)
    *earlier, last = models
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
    return Standing(name, value, low, high + 2 * best.stderr, reason, converged=best.model.converged_)


def _slack(trained: Trained) -> float | None:
    """Nats by which the bound may lie below the evidence at the same hyperparameters; None where that is not known."""
    evidence = trained.model.evidence_
    if evidence.upper is not None:
        return max(float(evidence.upper) - trained.evidence, 0.0)
    return None if evidence.slack is None else float(evidence.slack)


def next_refinement(trained: Trained, rows: int) -> Refinement | None:
    """The cheapest model that would narrow the interval of one that is trained; None where there is none."""
    job, model = trained.job, trained.model
    if model.inference_ == "exact":
        if not model.converged_:
            return _with_more_time(trained)
        draws = model.evidence_.num_samples
        if draws is None or isinstance(job.orbit, FiniteOrbit) or 2 * draws > MOST_DRAWS or not trained.stderr:
            return None
        further = _changed(job, MORE_DRAWS, inference="exact", num_samples=2 * draws)
        further = replace(further, begin=learned_by(model.model_, model.likelihood_))
        factor = 4.0 if job.purpose == MORE_DRAWS else _TWICE_THE_DRAWS
        return Refinement(further, f"{2 * draws} draws", factor * trained.seconds)
    options = [_with_less_slack(trained, rows)]
    cost = _exact_cost(trained, rows)
    if cost is not None and _fits(cost, job):
        options.append(Refinement(_changed(job, "exact inference", inference="exact"), "exact inference", cost.seconds))
    return min((option for option in options if option is not None), key=lambda option: option.seconds, default=None)


def _with_less_slack(trained: Trained, rows: int) -> Refinement | None:
    """A model of twice the size, with twice the steps and another seed. None where that could only repeat what is known.

    Where a model cannot grow, twice the steps serve one that has met a limit. One that has converged is trained a second time,
    since nothing is known of the upper end before, and never a third time.
    """
    job, growth = trained.job, _growth(trained, rows)
    changed: dict[str, Any] = {"num_inducing": len(_points(trained)), "max_steps": 2 * _steps(trained)}
    longer = f"{changed['max_steps']:,} steps"
    if not trained.model.converged_ and job.settings.get("max_seconds"):
        changed["max_seconds"] = 2 * job.settings["max_seconds"]
        longer = f"{longer} and {changed['max_seconds']:g} seconds"
    if growth is not None:
        purpose, larger, settings = growth
        changed.update(settings)
        words, times = f"{larger} and {longer}", 3
    elif not trained.model.converged_:
        purpose, words, times = "more steps", longer, 2
    elif not job.purpose:
        purpose, words, times = "a second run", "a second run", 2
    else:
        return None
    return Refinement(replace(_changed(job, purpose, **changed), seed=job.seed + 1), words, times * trained.seconds)


def _growth(trained: Trained, rows: int) -> tuple[str, str, dict[str, Any]] | None:
    """Twice the inducing points; or, with one for each datum, averages of twice as many samples; None where neither is of use.

    What for, in words, and as settings.
    """
    job, points, averaged, more = trained.job, len(_points(trained)), _averaged(trained), _more_points(trained, rows)
    if more > points:
        return "more inducing points", f"{more:,} inducing points", {"num_inducing": more}
    sees_all = isinstance(job.orbit, FiniteOrbit) and averaged >= job.orbit.size
    if not 1 < averaged <= MOST_AVERAGED // 2 or sees_all:
        return None
    options = (job.settings.get("training") or TrainingOptions()).set_params(inducing_samples=2 * averaged)
    return "wider inducing averages", f"inducing averages over {2 * averaged} samples", {"training": options}


def _more_points(trained: Trained, rows: int) -> int:
    """Twice the inducing points, as far as the orbits of the data have use for them: of averages, one for each datum."""
    orbit, points = trained.job.orbit, len(_points(trained))
    most = rows * (orbit.size if isinstance(orbit, FiniteOrbit) else POINTS_PER_DATUM)
    return max(points, min(2 * points, most if _averaged(trained) == 1 else rows))


def _averaged(trained: Trained) -> int:
    """Over how many samples each inducing variable of a sparse model averages."""
    model = trained.model.model_
    assert isinstance(model, InvariantGP)
    return model.inducing_samples


def _points(trained: Trained) -> Tensor:
    """The inducing points of a sparse model."""
    points = trained.model.model_.inducing
    assert isinstance(points, Tensor)
    return points


def _device(job: Job) -> torch.device:
    return torch.device(job.settings.get("device", "cpu"))


def _steps(trained: Trained) -> int:
    """The limit that the user gave, or as many steps as were taken without one."""
    taken = [record["step"] for record in getattr(trained.model, "history_", [])[-1:]]
    return int(trained.job.settings.get("max_steps") or max([TrainerSettings.max_steps, *taken]))


def _with_more_time(trained: Trained) -> Refinement | None:
    job = trained.job
    limits = {name: 4 * job.settings[name] for name in ("max_steps", "max_seconds") if job.settings.get(name)}
    if not limits:
        return None
    words = " and ".join(f"{name}={limit:g}" for name, limit in limits.items())
    return Refinement(_changed(job, "more steps", inference="exact", **limits), words, 4 * trained.seconds)


def _exact_cost(trained: Trained, rows: int) -> Cost | None:
    """The cost of learning exactly, where the user left the choice open and the likelihood allows it."""
    job, model = trained.job, trained.model
    if job.settings.get("inference", "auto") != "auto" or model.likelihood_.couples:
        return None
    draws = job.orbit.size if isinstance(job.orbit, FiniteOrbit) else LEAST_DRAWS
    dim, double = model.model_.covariance.num_features(_points(trained)), model.model_.dtype == torch.float64
    return Workload.of(model.likelihood_, draws, dim, _device(job), double).learning(rows)


def _fits(cost: Cost, job: Job) -> bool:
    """Whether there is memory for it."""
    return affordable(cost, inf, free_memory(_device(job))) is None


def _changed(job: Job, purpose: str, **settings: Any) -> Job:
    return replace(job, settings={**job.settings, **settings}, purpose=purpose)


def train_and_refine(
    jobs: Sequence[Job], rows: int, train: Train, seconds: float | None = None, n_jobs: int | None = None
) -> tuple[list[Standing], dict[str, list[Trained]]]:
    """Train a model for each orbit, then more where they decide, until the best orbit is certain or the time is up.

    Args:
        jobs: one for each orbit.
        rows: the data.
        train: trains jobs.
        seconds: for more models; by default SHARE times those of the first, and LEAST_SECONDS at least.
        n_jobs: how many models are trained at a time, as for scikit-learn.

    Returns the standing of each orbit, and all models by the name of their orbit.
    """
    models = {trained.job.name: [trained] for trained in train(jobs)}
    if seconds is None:
        seconds = max(LEAST_SECONDS, SHARE * sum(first.seconds for (first,) in models.values()))
    workers = 1 if n_jobs == 1 else int(joblib.effective_n_jobs(n_jobs))
    while True:
        standings = [replace(standing(row, rows), tried=max(1, len(jobs) - 1)) for row in models.values()]
        wanted = [(name, next_refinement(models[name][-1], rows)) for name in undecided(standings)]
        more = [step.job for name, step in wanted if step is not None and may_decide(name, step, standings, seconds)]
        if not more:
            return standings, models
        further = train(more[:workers])
        seconds -= max(trained.seconds for trained in further)
        for trained in further:
            models[trained.job.name].append(trained)


def may_decide(name: str, refinement: Refinement, standings: Sequence[Standing], seconds: float) -> bool:
    """Whether there is time for it, and it may tell this orbit from another.

    What more draws do is known: twice as many take four times as long, and leave about half of an interval. They are not worth
    their time where, as the values stand, no number of draws for which there is time would decide.
    """
    if refinement.seconds > seconds:
        return False
    if refinement.job.purpose != MORE_DRAWS:
        return True
    doublings = 1 + int(log(seconds / refinement.seconds, 4)) if refinement.seconds else MOST_DRAWS
    best, *others = ranked(standings)
    for other in others:
        difference, left = Difference(best, other), 0.5 * (best.width + other.width) / 2**doublings
        decides = difference.nats > max(difference.needed, left) or difference.nats + left <= difference.needed
        if name in (best.name, other.name) and decides and not difference.certain and not difference.next_to_nothing:
            return True
    return False


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
