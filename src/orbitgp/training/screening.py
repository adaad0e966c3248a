"""Screening: where a sparse run starts.

The gradient cannot escape a local optimum of the orbit's size. And the bound has the more slack the wider the orbit is, so that
it prefers narrow ones. Where the likelihood is Gaussian in f, the run therefore starts from kernel, noise and orbit at the top
of the *exact* evidence of some data (``quasi_newton``), and keeps that orbit: all else goes on with the bound.

For other likelihoods, or where the user says which starts to try, the run starts several times, with the orbit's reach as given
and at multiples of it, takes a few steps from each start, and continues from the start whose bound is best.
"""

from __future__ import annotations

import logging
import math
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from orbitgp.inference.cost import Workload, free_memory
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.training.options import TrainerSettings, TrainingOptions
from orbitgp.training.quasi_newton import QuasiNewton, representative_order

logger = logging.getLogger("orbitgp")

_EXACT_SAMPLES = 16  # draws of an infinite orbit where a start is found by exact evidence


@runtime_checkable
class Run(Protocol):
    """What screening needs of a :class:`~orbitgp.training.trainer.Trainer`."""

    model: InvariantGP
    likelihood: Likelihood
    x: Tensor
    y: Tensor
    options: TrainerSettings
    bounds: list[Tensor]
    seconds: float
    screened: bool
    keeps_orbit: bool
    stopped: bool

    def step(self) -> None: ...
    def timed(self) -> AbstractContextManager[None]: ...
    def redraw_inducing(self) -> None: ...
    def snapshot(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def is_needed(model: InvariantGP, options: TrainerSettings) -> bool:
    """Whether there is a choice: an orbit with a reach to learn, several starts, and steps to compare them by."""
    return len(model.orbit.reaches()) > 0 and len(options.starts) > 1 and _steps_per_start(options) > 0


def choose_start(run: Run) -> None:
    """Leave the run where it should go on from."""
    gaussian = not (run.likelihood.num_locals or run.likelihood.couples)
    if gaussian and run.options.starts == TrainingOptions.starts:
        _climb_exact_evidence(run)
    else:
        _choose_by_bound(run)


def _climb_exact_evidence(run: Run) -> None:
    """All but q(u) from the exact evidence of some data: as many as take a tenth of the time for an exact fit."""
    model, options = run.model, run.options
    with torch.no_grad():
        dim = model.covariance.features(run.x[:1].flatten(1)).shape[-1]
    work = Workload(_EXACT_SAMPLES, dim, run.x.device, double=run.x.dtype == torch.float64)
    count = work.most_rows(options.exact_seconds / 10, free_memory(run.x.device), len(run.x))
    rows = representative_order(run.y, options.seed)[:count].to(run.x.device)
    exact = ExactGP(model.kernel, model.orbit, run.x[rows], model.num_latents).to(run.x.device)
    exact.prior_mean = model.prior_mean
    budget = replace(options, max_seconds=None if options.max_seconds is None else options.max_seconds / 4)
    climber = QuasiNewton(
        exact,
        run.likelihood,
        run.x[rows],
        run.y[rows],
        budget,
        max_steps=max(1, options.max_steps // 3),
        most_samples=_EXACT_SAMPLES,
    )
    climber.callback = lambda record: climber.stop() if run.stopped else None
    origin = run.snapshot()
    try:
        with run.timed():
            climber.run()
    except FloatingPointError:  # another start may do
        run.load_state_dict(origin)
        _choose_by_bound(run)
        return
    if run.stopped:
        return
    run.redraw_inducing()
    run.screened = run.keeps_orbit = True
    logger.info("the orbit was learned by the exact evidence of %d rows.", count)


def _choose_by_bound(run: Run) -> None:
    """Take some steps from each start, and leave the run where the best start has come to.

    Each start has its own clock, so that all take their steps at the same point of the schedule. In the end the clock of the
    run shows the time of all of them. A run that is stopped meanwhile stays at the present start, and has made no choice.
    """
    origin = run.snapshot()
    starts, max_steps = run.options.starts, _steps_per_start(run.options)
    # Together the starts get a quarter of the time at most.
    max_seconds = (run.options.max_seconds or math.inf) / (4 * len(starts))
    spent, best_score, best_state = 0.0, -math.inf, None
    for multiple in starts:
        run.load_state_dict(origin)
        _set_reach(run, multiple)
        # If time runs out for one start, the next ones take as many steps as it did.
        max_steps = _take_steps(run, max_steps, until=origin["seconds"] + max_seconds)
        if run.stopped:
            run.seconds += spent
            return
        score = _score(run)
        spent += run.seconds - origin["seconds"]
        if best_state is None or score > best_score:
            best_score, best_state = score, run.snapshot()
    assert best_state is not None
    run.load_state_dict(best_state)
    run.seconds, run.screened = origin["seconds"] + spent, True


def _steps_per_start(options: TrainerSettings) -> int:
    return min(options.start_steps, options.max_steps // 4)


@torch.no_grad()
def _set_reach(run: Run, multiple: float) -> None:
    for reach in run.model.orbit.reaches():
        reach.mul_(multiple)
    if multiple != 1.0:
        # Inducing points for another reach may lie where no sample goes.
        run.redraw_inducing()


def _take_steps(run: Run, max_steps: int, until: float) -> int:
    """Train until the steps or the time are spent, or the run is stopped, and return how many steps were taken."""
    for taken in range(1, max_steps + 1):
        run.step()
        if run.stopped or run.seconds >= until:
            return taken
    return max_steps


def _score(run: Run) -> float:
    """The mean bound over the second half of the steps. A start whose bound is not a number loses against all others."""
    with run.timed():  # here the host waits for a GPU
        score = float(torch.stack(run.bounds[len(run.bounds) // 2 :]).mean())
    return score if math.isfinite(score) else -math.inf
