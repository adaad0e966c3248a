"""What everything that learns has in common, and what every run of climbs has.

Estimators, checkpoints and callbacks see a run as an :class:`Engine`: a :class:`~orbitgp.training.ladder.Ladder`,
:class:`~orbitgp.training.stochastic_steps.StochasticSteps`, or a :class:`~orbitgp.training.trainer.Trainer`, which runs
both. Its state is nested dictionaries and lists of tensors and numbers. A state that was read from a file lies on the
CPU: :func:`copied_to` moves every tensor of it at once, so that no part of a run has to think of devices.

A :class:`Run` is a sequence of climbs, and each depends only on the optima of those before it. These optima are the
state of the run. A run that continues looks them up instead of climbing again, and decides by the clock only where the
first run had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Targets
from orbitgp.orbits import Orbit
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import Rung
from orbitgp.planning.sparse import EVALUATIONS
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.learned_vector import Vector
from orbitgp.training.maximise import Optimum, Stopped
from orbitgp.training.objective import Objective
from orbitgp.training.records import Callback, Record, make_record

_SEARCH_SHARE = 0.5  # of a limit of time, for rungs on which several candidates climb


@dataclass
class Engine:
    """A run that learns from where its model is, with its clock, its history, and the state from which it continues.

    ``callback`` is called with every record of the history, ``after_step`` when a step or a climb is done. ``planned``
    are the seconds that it takes at the nominal speed of the device, about. ``steps`` are stochastic steps or
    evaluations of the evidence, at most ``max_steps`` of them. ``learn_rows`` is None where all rows are seen in turn.
    """

    model: InvariantGP | ExactGP | CollapsedGP
    likelihood: Likelihood
    x: AllInputs
    y: Targets
    options: TrainerSettings = field(default_factory=TrainerSettings)
    history: list[Record] = field(default_factory=list, init=False)
    callback: Callback | None = field(default=None, init=False)
    after_step: Callable[[Any], None] | None = field(default=None, init=False)
    planned: float = field(default=0.0, init=False)
    max_steps: int | None = field(default=None, init=False)
    learn_rows: int | None = field(default=None, init=False)
    steps = 0
    seconds: float = field(default=0.0, init=False)
    converged = False
    stopped = False
    _open = False

    @property
    def screened(self) -> bool:
        """Whether the start is chosen, so that the run can be saved."""
        return True

    @property
    def interruptible(self) -> bool:
        """Whether :class:`Stopped` may be raised at this moment, to end a long computation that can be done without."""
        return self._open

    def stop(self) -> None:
        """End the run after the step that it is in."""
        self.stopped = True

    @contextmanager
    def interruptibly(self) -> Iterator[None]:
        """Whoever stops the run while it is in this context may raise :class:`Stopped`."""
        if self.stopped:
            raise Stopped
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def fraction(self) -> float:
        """How much of the budget is spent; 1 when the run is over."""
        raise NotImplementedError

    def progress(self) -> float:
        """How much of the time that the run takes is over, about."""
        return self.fraction()

    def summary(self) -> str:
        """What happened, in words."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on. Its tensors are those of the run, not copies."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Continue from a state of the same run."""
        raise NotImplementedError


@dataclass(kw_only=True)
class Run(Engine):
    """Budget, records and state of a run. ``max_steps`` limits evaluations of the evidence, ``limit`` the time."""

    limit: TimeLimit = field(default_factory=lambda: TimeLimit(None))
    max_steps: int | None = None
    planned: float = 0.0  # seconds at the nominal speed, if that is known
    learn_rows: int = field(default=0, init=False)

    def start_records(self, kernel: Kernel, orbit: Orbit, likelihood: Likelihood) -> None:
        """Before the first climb."""
        self._described = kernel, orbit, likelihood
        self.optima: list[Optimum] = []  # of all climbs so far
        self._nominal = 0.0
        self._late_after: int | None = None  # climbs after which candidates had taken their share of the time
        self._done = 0  # climbs that this run has come to, or the one that it continues
        self._climb_number = -1
        self.start_clock()
        self._snapshot = self.state()

    def start_clock(self) -> None:
        """Before the first evaluation, in this process."""
        self._clock, self._began = time.perf_counter() - self.seconds, (time.perf_counter(), time.process_time())

    def evaluate(self, objective: Objective, vector: Vector, rung: Rung) -> tuple[float, Vector]:
        """Evaluate an objective once, if the budget allows."""
        with self.in_budget(rung):
            self.steps += 1
            self._nominal += self.limit.evaluation_seconds(rung.rows, 1 if objective.is_plain else rung.draws)
            found = objective(vector)
        if not objective.is_plain:
            now, busy = time.perf_counter(), time.process_time() - self._began[1]
            load = (now - self._began[0]) / max(busy, 1e-9)
            self.limit.record_evaluation(now - self._clock - self.seconds, rung.rows, rung.draws, load)
        return found

    def score(self, objective: Objective, rung: Rung, vector: Vector) -> float:
        """The evidence there without its gradient, if the budget allows. It is no step."""
        with self.in_budget(rung):
            return objective.value_at(vector)

    @contextmanager
    def in_budget(self, rung: Rung, best: Optimum | None = None) -> Iterator[None]:
        """What may be interrupted, and does not begin where the budget is spent. A continued run has done it.

        ``best``: the highest point known, which would be lost.
        """
        self.seconds = time.perf_counter() - self._clock
        try:
            if self.stopped or (self.up_to_date and self._fraction(rung) >= 1.0):
                raise Stopped
            with self.interruptibly():
                yield
        except Stopped as stopped:
            stopped.best = best
            raise

    def climb_once(self, climb: Callable[..., Optimum], *arguments: Any, **settings: Any) -> Optimum:
        """The optimum of this climb. A continued run knows it by its number, so no clock may decide which there are."""
        if self.up_to_date:
            if self.optima:
                self.between_climbs()
            self._climb_number += 1
            self.optima.append(climb(*arguments, **settings))
        self._done += 1
        return self.optima[self._done - 1]

    @property
    def up_to_date(self) -> bool:
        """Whether a run that continues has come to where it was stopped, so that its clock counts again."""
        return self._done == len(self.optima)

    def is_late(self, rung: Rung) -> bool:
        """Whether candidates have taken their share of the time. A run that continues keeps to when they first had."""
        share = _SEARCH_SHARE * self.limit.to_learn(rung.draws)
        if self.up_to_date and self._late_after is None and self.seconds > share:
            self._late_after = self._done
        return self._late_after is not None and self._done >= self._late_after

    def has_time_for(self, rung: Rung) -> bool:
        """Whether there is time to learn with as many draws, and to condition with them."""
        return not self.up_to_date or self.seconds < self.limit.to_learn(rung.draws)

    def between_climbs(self) -> None:
        """Keep the state, unless a climb was stopped midway: a run that continues begins that climb again."""
        if len(self.optima) > self._climb_number:
            self._snapshot = self.state()
        if self.after_step is not None:
            self.after_step(self)

    def summary(self) -> str:
        name = "evidence" if isinstance(self.model, ExactGP) else "bound"
        some = f", learned from {self.learn_rows:,} of {len(self.x):,} rows" if self.learn_rows < len(self.x) else ""
        draws = "" if self.model.num_samples is None else f" with {self.model.num_samples} draws of the orbit"
        if self.converged:
            return f"The {name} is at an optimum{some}, after {self.steps:,} evaluations{draws}."
        why = f"{'was stopped' if self.stopped else 'met its limit'} after {self.steps:,} evaluations{some}"
        return f"The run {why}; the best parameters so far are kept. Raise the limit."

    def fraction(self) -> float:
        return self._fraction(None)

    def progress(self) -> float:
        """Of what was planned, or of the budget."""
        expected = self._nominal / self.planned if self.planned else self.steps / EVALUATIONS
        return min(max(expected, self.fraction()), 0.99)

    def _fraction(self, rung: Rung | None) -> float:
        if self.converged:
            return 1.0
        by_steps = 0.0 if self.max_steps is None else self.steps / self.max_steps
        return max(by_steps, self.seconds / self.limit.to_learn(None if rung is None else rung.draws))

    def record(self, value: float, rung: Rung, objective: Objective | None = None) -> None:
        """Append a record of this moment to the history."""
        self.seconds = time.perf_counter() - self._clock
        progress = {
            "num_samples": rung.draws,
            "rows": rung.rows,
            "climb": self._climb_number,
            "exact": isinstance(self.model, ExactGP),
            "without_orbit": objective is not None and objective.is_plain,
            "jitter": 0.0 if objective is None else objective.jitter,
        }
        record = make_record(*self._described, value, self.steps, self.seconds, progress)
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)

    def state(self) -> dict[str, Any]:
        """All that a run that continues from here depends on."""
        return {
            "optima": [optimum.packed() for optimum in self.optima],
            "late_after": self._late_after,
            "climb": self._climb_number,
            "steps": self.steps,
            "seconds": self.seconds,
            "pace": self.limit.pace,
            "history": list(self.history),
        }

    def state_dict(self) -> dict[str, Any]:
        """The state in which the current climb began."""
        return self._snapshot

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the beginning of a climb."""
        state = copied_to(torch.device("cpu"), state)
        self.optima = [Optimum.unpacked(*parts) for parts in state["optima"]]
        self._late_after, self._climb_number, self._done = state["late_after"], state["climb"], 0
        self.steps, self.seconds, self.history = state["steps"], state["seconds"], state["history"]
        self.limit.pace = state["pace"]
        self._snapshot = self.state()


def copied_to(device: torch.device, state: Any) -> Any:
    """A copy of a state, with every tensor on this device."""
    if isinstance(state, Tensor):
        return state.detach().to(device, copy=True)
    if isinstance(state, dict):
        return {name: copied_to(device, value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied_to(device, value) for value in state)
    return state
