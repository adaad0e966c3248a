"""Training: maximise the bound over q(u), the inducing points, the kernel, the likelihood and the orbit, together.

A run has three parts:

1. Kernel, likelihood and orbit are learned from a few data by their exact evidence (``screening``). This is the start.
2. All else is learned from there. Where data are few, a ladder climbs the bound at its best q(u) by quasi-Newton
   steps (``collapsed_climb``). Elsewhere the run takes stochastic steps (``stochastic_steps``).
3. With all else fixed, the last q(u) is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.inducing_points import initial_inducing, points_are_best
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource
from orbitgp.likelihoods import Likelihood
from orbitgp.planning.climb_size import ClimbSize, climb_size
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.sparse_cost import affordable_steps, default_steps, rest_of
from orbitgp.training import screening
from orbitgp.training.collapsed_climb import collapsed_ladder, held, pace_of, set_last_posterior
from orbitgp.training.engine import copied_to
from orbitgp.training.ladder import Ladder
from orbitgp.training.records import Record, progress_bar
from orbitgp.training.stochastic_steps import StochasticSteps


@dataclass
class Trainer:
    """One training run: call :meth:`run`, or :meth:`step` by hand and :meth:`polish` at the end.

    ``callback`` is called with every record of the history, ``after_step`` when a step is done. ``state_dict`` holds everything
    that the rest of the run depends on, so that a run that continues from it ends where it would have ended. ``free_steps``:
    the user has set no ``max_steps``, so stochastic steps, if the run takes them, may be as many as take ten minutes.
    ``seconds_before`` of the limit of time went into what came before, and ``rest`` is what is left when learning is over.
    """

    model: InvariantGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"] | RowSource
    y: Float[Tensor, "rows *outputs"]
    options: TrainerSettings = field(default_factory=TrainerSettings)
    callback: Callable[[Record], None] | None = None
    progress: bool = False
    after_step: Callable[[Any], None] | None = None
    free_steps: bool = False
    seconds_before: float = 0.0

    def __post_init__(self) -> None:
        sized = self.model, self.likelihood, self.x
        size = climb_size(*sized, self.options)
        if size is None:
            self.options = affordable_steps(*sized, self.options)
            if self.free_steps:
                self.options = replace(self.options, max_steps=default_steps(*sized, self.options))
        problem = self.model, self.likelihood, self.x, self.y, self.options
        self.stochastic = StochasticSteps(*problem, self._report, self.progress, lambda _: self._step_done())
        self.stochastic.seconds = self.seconds_before
        self.size = size
        self.climb: Ladder | None = None  # made when the start is chosen
        self.screened = not screening.is_needed(self.likelihood, self.options)
        self.keeps_orbit = False
        self.rest = rest_of(self.options)
        self._begin: dict[str, Any] | None = None  # the state in which the climb began

    def _new_climb(self, size: ClimbSize) -> Ladder:
        """A climb of this size, which keeps the orbit or the inducing points where these cannot be better."""
        assert isinstance(self.x, Tensor)
        points = self.model.inducing
        fixed = list(self.model.orbit.parameters()) if self.keeps_orbit else []
        fixed += [points] if points_are_best(self.model.orbit, len(points), len(self.x)) else []
        watching = {"callback": self._report, "progress": self.progress, "after_step": lambda _: self._step_done()}
        with held(fixed):
            return collapsed_ladder(self.model, self.likelihood, self.x, self.y, self.options, size, **watching)

    @property
    def engine(self) -> StochasticSteps | Ladder:
        """What learns once the start is chosen."""
        return self.stochastic if self.climb is None else self.climb

    @property
    def draws(self) -> int | None:
        """The most draws of the orbit with which the bound is climbed; None where steps are stochastic."""
        return None if self.size is None else self.size.draws

    @property
    def learn_rows(self) -> int | None:
        """How many rows a climb learns from; None where steps are stochastic, and see all of them in turn."""
        return None if self.size is None else self.size.rows

    @property
    def max_steps(self) -> int:
        """The most steps that the run may take."""
        return self.options.max_steps

    @property
    def steps(self) -> int:
        """Steps so far, or evaluations of the bound."""
        return self.engine.steps

    @property
    def history(self) -> list[Record]:
        """What the bound and the parameters were along the way."""
        return self.engine.history

    @property
    def stopped(self) -> bool:
        """Whether the run was asked to stop."""
        return self.engine.stopped

    @property
    def converged(self) -> bool:
        """Whether the bound had stopped rising before the budget was spent."""
        return self.engine.converged

    def stop(self) -> None:
        """Let the run end after the step that it is in, short of its budget."""
        self.stochastic.stop()  # to which a climb that fails would leave the rest
        self.engine.stop()

    def fraction(self) -> float:
        """How much of the run is over."""
        return self.engine.fraction()

    def summary(self) -> str:
        """What happened, in words."""
        return self.engine.summary()

    def run(self) -> list[Record]:
        """Train until the bound has stopped rising or the budget is spent, find the last q(u), and return the history."""
        if not self.screened:
            with progress_bar(self.progress, "evaluations") as bar:
                bar.set_postfix_str("choosing a start")
                self.choose_start(lambda record: bar.update(record["step"] - bar.n))
            self._step_done()
        if self.size is not None and not self.stopped:
            self._run_climb(self.size)
        if self.size is None:
            self.stochastic.run(self.keeps_orbit)
        self.polish()
        return self.history

    def choose_start(self, watch: Callable[[Record], object] = lambda _: None) -> None:
        """Leave kernel, likelihood, prior mean and orbit at the best start. A run that is stopped has made no choice.

        ``watch`` is called with every record on the way.
        """

        def stopped(record: Record) -> bool:
            watch(record)
            return self.stopped

        origin = self.stochastic.snapshot()
        with self.stochastic.timed():
            try:
                screening.climb(self.model, self.likelihood, self.x, self.y, self.options, stopped)
            except FloatingPointError:  # the run itself may do better with other data or samples
                self.stochastic.load_state_dict(origin)
                self.screened = True
                return
            if self.stopped:
                return
            self._redraw_inducing()
            screening.raise_noise(self.model, self.likelihood, self.x, self.y, self.options.seed)
            self.screened = True
            self.keeps_orbit = screening.keeps_orbit(self.likelihood)

    @torch.no_grad()
    def _redraw_inducing(self) -> None:
        """Draw the inducing points again, from the orbit as it is now."""
        model, generator = self.model, self.stochastic.generator
        size, averaged = len(model.inducing), model.inducing_samples
        model.inducing.copy_(initial_inducing(self.x, model.orbit, model.kernel, size, None, generator, averaged))
        self.stochastic.forget_points()

    def _run_climb(self, size: ClimbSize) -> None:
        """Climb the collapsed bound. Where that fails, stochastic steps will go on from where the climb began."""
        if self._begin is None:
            self._begin = self.stochastic.snapshot()
        if self.climb is None:
            self.climb = self._new_climb(size)
            self.climb.seconds = self.stochastic.seconds
        self.stochastic.posterior.factor()  # finds the jitter that Kuu needs
        try:
            self.climb.learn()
        except FloatingPointError:
            self.stochastic.load_state_dict(self._begin)
            self.climb = self._begin = self.size = None

    def step(self) -> None:
        """Take one stochastic step by hand. What is left of the run takes such steps, too."""
        self.climb = self._begin = self.size = None
        self.stochastic.step(self.keeps_orbit)

    def polish(self) -> None:
        """With all else fixed, find the last q(u)."""
        self.rest.spent = self.engine.seconds
        if self.climb is not None:
            self.rest.pace = pace_of(self.climb)
            set_last_posterior(self.climb, self.rest)
        else:
            self.rest.pace = self.stochastic.pace
            self.stochastic.polish(self.rest)

    def _report(self, record: Record) -> None:
        if self.callback is not None:
            self.callback(record)

    def _step_done(self) -> None:
        if self.after_step is not None:
            self.after_step(self)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on. Its tensors are those of the run, not copies.

        A climb goes on from where it began, with the tops that its stages have found.
        """
        return {
            "screened": self.screened,
            "keeps_orbit": self.keeps_orbit,
            "stochastic": self.stochastic.state_dict() if self._begin is None else self._begin,
            "climb_size": None if self.size is None else list(self.size),
            "climb": None if self.climb is None or self._begin is None else self.climb.state_dict(),
        }

    def snapshot(self) -> dict[str, Any]:
        """A copy of the state, which stays as it is while the run continues."""
        return copied_to(self.x.device, self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same run, from any device. The state itself stays as it is."""
        state = copied_to(self.x.device, state)
        self.screened, self.keeps_orbit = state["screened"], state["keeps_orbit"]
        self.stochastic.load_state_dict(state["stochastic"])
        size = state["climb_size"]
        self.size, self.climb, self._begin = None if size is None else ClimbSize(*size), None, None
        if self.size is not None and state["climb"] is not None:
            self.climb, self._begin = self._new_climb(self.size), state["stochastic"]
            self.climb.load_state_dict(state["climb"])
