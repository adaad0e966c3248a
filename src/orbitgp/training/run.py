"""One run of climbs: its budget, its records, and the state from which it continues.

A run is a sequence of climbs, and each depends only on the optima of those before it. These optima are the state of the run. A
run that continues looks them up instead of climbing again, and decides by the clock only where the first run had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpytorch.kernels import Kernel

from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Orbit
from orbitgp.planning.rungs import Rung
from orbitgp.planning.sparse import EVALUATIONS
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.engine import Engine, copied_to
from orbitgp.training.learned_vector import Vector
from orbitgp.training.maximise import Optimum, Stopped
from orbitgp.training.objective import Objective
from orbitgp.training.records import Record, make_record

_SEARCH_SHARE = 0.5  # of a limit of time, for rungs on which several candidates climb


@dataclass(kw_only=True)
class Run(Engine):
    """Budget, records and state of a run. ``max_steps`` limits evaluations of the evidence, ``limit`` the time.

    ``callback`` is called with every record of the history, ``after_step`` between two climbs.
    """

    limit: TimeLimit = field(default_factory=lambda: TimeLimit(None))
    max_steps: int | None = None
    callback: Callable[[Record], None] | None = None
    planned: float = 0.0  # seconds at the nominal speed, if that is known
    after_step: Callable[[Any], None] | None = None
    learn_rows: int = field(default=0, init=False)

    def start_records(self, kernel: Kernel, orbit: Orbit, likelihood: Likelihood) -> None:
        """Before the first climb."""
        self._described = kernel, orbit, likelihood
        self.optima: list[Optimum] = []  # of all climbs so far
        self.history: list[Record] = []
        self.steps = 0  # evaluations of the evidence with its gradient
        self.seconds = self._nominal = 0.0
        self.stopped = False
        self.converged = False
        self._late_after: int | None = None  # climbs after which candidates had taken their share of the time
        self._done = 0  # climbs that this run has come to, or the one that it continues
        self._climb_number = -1
        self._clock = time.perf_counter()
        self._snapshot = self.state()

    def start_clock(self) -> None:
        """Before the first evaluation, in this process."""
        self._clock = time.perf_counter() - self.seconds

    def evaluate(self, objective: Objective, vector: Vector, rung: Rung) -> tuple[float, Vector]:
        """Evaluate an objective once, if the budget allows."""
        self.seconds = time.perf_counter() - self._clock
        if self.stopped or self._fraction(rung) >= 1.0:
            raise Stopped
        self.steps += 1
        self._nominal += self.limit.evaluation_seconds(rung.rows, 1 if objective.is_plain else rung.draws)
        with self.interruptibly():
            found = objective(vector)
        if not objective.is_plain:
            self.limit.record_evaluation(time.perf_counter() - self._clock - self.seconds, rung.rows, rung.draws)
        return found

    def climb_once(self, climb: Callable[..., Optimum], *arguments: Any, **settings: Any) -> Optimum:
        """The optimum of this climb, which a run that continues already knows."""
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
        """Whether candidates have taken their share of the time. A run that continues decides as the first one did."""
        if self.up_to_date and self._late_after is None and self.seconds > _SEARCH_SHARE * self.limit.to_learn(rung.draws):
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
