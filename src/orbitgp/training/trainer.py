"""Sparse training: maximise the bound over q(u), inducing points, kernel, likelihood and orbit together.

A run has three parts:

1. Kernel, likelihood and orbit start from some rows, learned by their exact evidence (``sparse_ladders``).
2. All else is learned from there, by a ladder of the bound at its best q(u) where every step can see all data
   (``sparse_ladders``), and by stochastic steps elsewhere (``stochastic_steps``).
3. With all else fixed, the last q(u) is found.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import torch

from orbitgp.inference.inducing_points import initial_inducing, points_are_best
from orbitgp.inference.local_parameters import Setting
from orbitgp.inference.model import InvariantGP
from orbitgp.planning.rungs import Rung
from orbitgp.planning.sparse import affordable_steps, climb, learning_seconds, most_evaluations
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training import sparse_ladders
from orbitgp.training.ladder import Ladder
from orbitgp.training.maximise import Stopped
from orbitgp.training.posterior import fit_jitter
from orbitgp.training.records import Record
from orbitgp.training.run import Engine, copied_to
from orbitgp.training.sparse_ladders import SHORTEST, collapsed_ladder, pace_of, set_last_posterior, start_ladder
from orbitgp.training.stochastic_steps import StochasticSteps

Result = TypeVar("Result")

logger = logging.getLogger("orbitgp")


@dataclass
class Trainer(Engine):
    """One run of sparse training: call :meth:`run`.

    ``state_dict`` holds everything that the rest of the run depends on, so that a run that continues from it ends where
    it would have ended. ``free_steps``: the user has set no ``max_steps``, so there may be as many as take ten minutes.
    ``seconds`` of the limit of time went into what came before, learning may take two thirds of the limit, and ``rest``
    is what is left then. ``last_rung`` is that of the climb, or None for stochastic steps.
    """

    model: InvariantGP
    free_steps: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._setting = Setting(self.model, self.likelihood, self.x, self.y)
        self.rest = TimeLeft(self.options.max_seconds)
        if self.options.max_seconds is not None:
            self.options = replace(self.options, max_seconds=2 / 3 * self.options.max_seconds)
        sized = self.model, self.likelihood, self.x
        self.last_rung = climb(*sized, self.options)
        if self.last_rung is None:
            self.options = affordable_steps(*sized, self.options, self.free_steps)
        else:
            self.learn_rows = self.last_rung.rows
        self.max_steps = self.options.max_steps
        self.engine: StochasticSteps | Ladder | None = None  # made when the start is chosen
        self.freeze_orbit = False
        self._begin: dict[str, Any] | None = None  # the parameters where the climb began
        chooses = self.options.start_rows > 0 and self.options.max_steps >= SHORTEST
        self._start = start_ladder(self._setting, self.options) if chooses else None
        start = 0.0 if self._start is None else self._start.planned
        seconds = start, *learning_seconds(*sized, self.options, self.last_rung)
        self._start_share, self._learning_share, _ = (part / sum(seconds) for part in seconds)
        self.planned = min(sum(seconds), self.rest.seconds or inf)

    @property
    def screened(self) -> bool:
        return self._start is None

    @property
    def stochastic(self) -> StochasticSteps:
        """Stochastic steps from where the model is. Once they are asked for, the run takes no others."""
        if not isinstance(self.engine, StochasticSteps):
            self.last_rung = None
            self._make_engine()
        assert isinstance(self.engine, StochasticSteps)
        return self.engine

    def _make_engine(self) -> StochasticSteps | Ladder:
        """Learn from where the model is, by climbs or by steps."""
        engine: StochasticSteps | Ladder
        with self._held():
            if self.last_rung is None:
                engine = StochasticSteps(*self._setting, self.options)
            else:
                self._begin = self._parameters()
                engine = collapsed_ladder(self._setting, self.options, self.last_rung)
                if self.free_steps and self.options.max_seconds is None:
                    engine.max_steps = most_evaluations(self.model, self.likelihood, self.x, self.last_rung)
        engine.callback, engine.after_step = self.callback, lambda _: self._step_done()
        engine.seconds, engine.stopped = self.seconds, self.stopped
        self.engine, self.history, self.learn_rows = engine, engine.history, engine.learn_rows
        return engine

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Do not learn what cannot get better: the orbit of an exact evidence, and inducing points at all data."""
        points = self.model.inducing
        fixed = list(self.model.orbit.parameters()) if self.freeze_orbit else []
        fixed += [points] if points_are_best(self.model.orbit, len(points), len(self.x)) else []
        learned = [parameter for parameter in fixed if parameter.requires_grad]
        for parameter in learned:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in learned:
                parameter.requires_grad_(True)

    @property
    def interruptible(self) -> bool:
        return self._open or any(part.interruptible for part in (self.engine, self._start) if part is not None)

    def stop(self) -> None:
        super().stop()
        for part in (self.engine, self._start):
            if part is not None:
                part.stop()

    def fraction(self) -> float:
        return 0.0 if self.engine is None else self.engine.fraction()

    def progress(self) -> float:
        """The start and what follows learning count as the shares that they were planned to be."""
        if self.engine is not None:
            return self._start_share + self._learning_share * self.engine.progress()
        return self._start_share * (0.0 if self._start is None else self._start.progress())

    def summary(self) -> str:
        return "" if self.engine is None else self.engine.summary()

    def run(self) -> list[Record]:
        """Train until the bound stops rising or the budget is spent, find the last q(u), and return the history."""
        if self._start is not None:
            self.choose_start()
            self._step_done()
        if self.engine is None:
            self._make_engine()
        with self._held():
            if isinstance(self.engine, Ladder):
                fit_jitter(self._setting, self.options.jitter)
                self.engine.learn()
            else:
                self.stochastic.run()
        self._see_engine()
        self.polish()
        return self.history

    def choose_start(self) -> None:
        """Leave kernel, likelihood, prior mean and orbit at the best start, and draw inducing points from its orbit.

        A run that is stopped has made no choice.
        """
        model, ladder, origin, begun = self.model, self._start, self._parameters(), time.perf_counter()
        assert ladder is not None
        try:
            ladder.learn()
        except FloatingPointError:  # the run itself may do better with other data or samples
            self._set_parameters(origin)
            self._start = None
        else:
            if not self.stopped:
                logger.info("kernel and orbit start from the exact evidence of %d rows.", len(ladder.x))
                generator = torch.Generator(self.x.device).manual_seed(self.options.seed)
                size = len(model.inducing), None, generator, model.inducing_samples
                with torch.no_grad():
                    model.inducing.copy_(initial_inducing(self.x, model.orbit, model.kernel, *size))
                sparse_ladders.raise_noise(self._setting, self.options.seed)
                self._start, self.freeze_orbit = None, not self.likelihood.num_locals
        self.seconds += time.perf_counter() - begun

    def polish(self) -> None:
        """With all else fixed, find the last q(u)."""
        engine = self.stochastic if self.engine is None else self.engine
        self.rest.spent, self.rest.pace = engine.seconds, pace_of(engine) if isinstance(engine, Ladder) else engine.pace
        if isinstance(engine, Ladder):
            self.in_time(partial(set_last_posterior, engine, self.rest))
        else:
            self.in_time(partial(engine.polish, self.rest))

    def in_time(self, work: Callable[[], Result]) -> Result:
        """What follows learning. If the run is stopped, it is done in the few seconds that are left for it."""
        try:
            with self.interruptibly():
                return work()
        except Stopped:
            self.rest.hurry()
            return work()

    def _see_engine(self) -> None:
        """How far the engine has come."""
        if self.engine is not None:
            self.steps, self.history, self.converged = self.engine.steps, self.engine.history, self.engine.converged
            self.stopped = self.engine.stopped

    def _step_done(self) -> None:
        self._see_engine()
        if self.after_step is not None:
            self.after_step(self)

    def _parameters(self) -> dict[str, Any]:
        """A copy of all that is learned."""
        model, likelihood = self.model.state_dict(), self.likelihood.state_dict()
        state = {"model": model, "likelihood": likelihood, "jitter": self.model.jitter}
        return {name: copied_to(self.x.device, value) for name, value in state.items()}

    def _set_parameters(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.likelihood.load_state_dict(state["likelihood"])
        self.model.jitter = state["jitter"]

    def state_dict(self) -> dict[str, Any]:
        """A climb goes on from where it began, with the optima that its rungs have found."""
        return {
            "freeze_orbit": self.freeze_orbit,
            "last_rung": None if self.last_rung is None else list(self.last_rung),
            "begin": self._parameters() if self.engine is None else self._begin,
            "engine": None if self.engine is None else self.engine.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same run, from any device. The state itself stays as it is."""
        state = copied_to(self.x.device, state)
        self._start, self.freeze_orbit = None, state["freeze_orbit"]
        self.last_rung = None if state["last_rung"] is None else Rung(*state["last_rung"])
        if state["begin"] is not None:
            self._set_parameters(state["begin"])
        if state["engine"] is not None:
            (self.engine or self._make_engine()).load_state_dict(state["engine"])
            self._see_engine()
