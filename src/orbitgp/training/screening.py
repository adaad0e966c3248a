"""Screening: the choice of the orbit's initial reach.

The gradient cannot escape a local optimum of the orbit's size. So the run starts several times, with the orbit's reach as given
and at multiples of it, takes a few steps from each start, and continues from the start whose bound is best.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from orbitgp.inference.model import InvariantGP
from orbitgp.training.options import TrainerSettings


@runtime_checkable
class Run(Protocol):
    """What screening needs of a :class:`~orbitgp.training.trainer.Trainer`."""

    model: InvariantGP
    options: TrainerSettings
    bounds: list[Tensor]
    seconds: float
    screened: bool
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
