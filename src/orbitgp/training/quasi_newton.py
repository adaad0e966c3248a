"""Learning by the exact evidence: few data, a deterministic objective, quasi-Newton steps to the top.

Where all data are conditioned on exactly (``inference.exact``), the evidence and its gradient have no noise: draws of the orbit
are fixed and shared by all data. Kernel, likelihood, feature map and orbit then climb together by BFGS, without learning rates.
Four things make that safe and quick:

- **Starts.** The evidence may have several tops over the reach of an orbit. Narrower and wider starts, and the simpler orbits
  that it contains (``starts``), are each brought close to their top on some of the data, with few draws. The best goes on.
  Very few data say which of them lead to different orbits. The model without the orbit is tried from several lengthscales: an
  orbit that contains it does not end below it. Many data have tops that few do not show: these are sought near the best.
- **Draws.** S fixed draws are a finite orbit, a model of its own. S doubles until a climb with twice the draws gains little,
  and ends at about the same evidence. Each stage begins with the curvature that the last one has learned.
- **Rows.** Where learning by all data would take too long, it sees the first ``learn_rows`` of them in an order whose every
  beginning stands for the whole. The posterior is that of all data.
- **Fresh draws.** What was fitted to draws is scored on others: the evidence that counts is that of the last S.

A run is a sequence of ``stages``. Each is one climb (``climb``), and depends only on the tops that the climbs before it have
found. So a run that continues ends in the same place as one that was never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference.collapsed import CollapsedBound, CollapsedGP
from orbitgp.inference.cost import FIRST_SAMPLES, LEAST_SAMPLES, MOST_SAMPLES
from orbitgp.inference.dense_posterior import Solution
from orbitgp.inference.device_speed import reckoned_seconds
from orbitgp.inference.exact import ExactGP, workload
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.training.best_start import EARLY_SETTLED, SETTLED, TIE, BestStart, still_tied
from orbitgp.training.climb import Climb, Curvature, Stopped, Top
from orbitgp.training.diagnostics import Record, headline, hyperparameters
from orbitgp.training.learned_vector import Vector
from orbitgp.training.objective import ExactObjective, representative_order
from orbitgp.training.options import TrainerSettings
from orbitgp.training.progress import progress_bar
from orbitgp.training.stages import Stages
from orbitgp.training.starts import possible_starts
from orbitgp.training.state import copied_to
from orbitgp.training.time_limit import TimeLimit

TOLERANCE = 1.0  # nats by which the evidence may move when S doubles
_LEAST_RUNG = 300  # rows, below which no number of rows is climbed with between the starts and the rows to learn from
_OF_ROWS = 2e-5  # nats a row, below which an iteration gains too little
_SEARCH = 0.5  # of a limit of time: what the search for the best start may take
_OF_DRAWS = 0.05  # nothing finer is sought than this part of what other draws would change, or a doubling of S has moved


Learned = dict[str, dict[str, Any]]  # the state of each part of a model, by name


def parts_of(model: ExactGP | CollapsedGP | InvariantGP, likelihood: Likelihood) -> dict[str, nn.Module]:
    """The parts of a model that are learned."""
    return {"kernel": model.kernel, "orbit": model.orbit, "prior_mean": model.prior_mean, "likelihood": likelihood}


def learned_by(model: ExactGP | InvariantGP, likelihood: Likelihood) -> Learned:
    """What a run has learned, to begin another one with."""
    return {name: part.state_dict() for name, part in parts_of(model, likelihood).items()}


@dataclass
class QuasiNewton:
    """One run of learning by the exact evidence: :meth:`run` leaves the model conditioned on all data, at the best parameters.

    ``max_steps`` and ``max_seconds`` of the settings limit evaluations of the evidence and time; without them a run ends when
    it has converged. ``num_samples`` fixes the number of draws, ``most_samples`` limits it. Parameters are
    learned from ``learn_rows`` of the data (None: all).
    """

    model: ExactGP | CollapsedGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"]
    y: Float[Tensor, "rows *outputs"]
    options: TrainerSettings
    max_steps: int | None = None
    num_samples: int | None = None
    most_samples: int = MOST_SAMPLES
    learn_rows: int | None = None
    callback: Callable[[Record], None] | None = None
    progress: bool = False
    after_step: Callable[[Any], None] | None = None
    screened: bool = True  # checkpoints may be written from the first stage on

    def __post_init__(self) -> None:
        self._start_rows = min(self.options.start_rows, len(self.x))
        self._num_learned = len(self.x) if self.learn_rows is None else min(self.learn_rows, len(self.x))
        self.limit = self._time_limit()
        # Draws of the first stage and of the last; None where there is nothing to draw.
        fixed = self.model.is_enumerated or self.num_samples is not None
        self._first_samples = self.num_samples if fixed else min(FIRST_SAMPLES, self.most_samples)
        self._last_samples = self.num_samples if fixed else self.most_samples
        # Which rows are learned from is left to chance; which of them a start sees first should not matter.
        order = representative_order(self.y, self.options.seed if self._num_learned < len(self.x) else 0)
        self.objective = ExactObjective(self.model, self.likelihood, self.y, order)
        self.learned = self.objective.learned
        self.starts = possible_starts(self.model.orbit, self.x, self.model.kernel)[: None if self.options.start_rows else 1]
        self.history: list[Record] = []
        self.steps = 0  # evaluations of the evidence with its gradient
        self.seconds = 0.0
        self.stopped = False
        self.converged = False
        self.draw_error: float | None = None  # what the last doubling of draws has moved
        self.evidence_error = 0.0  # two of these cover other draws
        self._clock = time.perf_counter()
        self._orbit = self.model.orbit  # which every record tells of, those of climbs without it, too
        self._climb_number = 0  # stages that go on where the last one ended are one climb to those who read the history
        self._stages = Stages()
        self._posterior: Solution | CollapsedBound | None = None  # that of all data, where the last stage has found it
        self._snapshot = self._state()

    def begin_at(self, learned: Learned) -> None:
        """Begin with what another run has learned, and try no other start."""
        for name, part in parts_of(self.model, self.likelihood).items():
            part.load_state_dict(learned[name])
        self.starts = self.starts[:1]
        self._snapshot = self._state()

    def summary(self) -> str:
        """What happened, in words."""
        begun = f", from the best of {len(self.starts)} starts" if len(self.starts) > 1 else ""
        draws = "" if self.model.num_samples is None else f" and {self.model.num_samples} draws of the orbit"
        if self.converged:
            return f"The evidence is at a top{begun}, after {self.steps:,} evaluations{draws}."
        why = "was stopped" if self.stopped else "met its limit"
        return f"The run {why} after {self.steps:,} evaluations{begun}; the best parameters so far are kept. Raise the limit."

    def stop(self) -> None:
        """End the run after the evaluation that it is in."""
        self.stopped = True

    def fraction(self) -> float:
        """How much of the budget is spent; 1 when the run is over."""
        if self.converged:
            return 1.0
        by_steps = 0.0 if self.max_steps is None else self.steps / self.max_steps
        return max(by_steps, self.seconds / self.limit.to_learn(self.model.num_samples))

    def _time_limit(self) -> TimeLimit:
        """That of the settings, less what follows when learning is over."""
        seconds = self.options.max_seconds
        if seconds is None or not isinstance(self.model, ExactGP):
            return TimeLimit(seconds)
        work = workload(self.model, self.likelihood, self.num_samples or self.most_samples)
        return TimeLimit(seconds, self._num_learned, len(self.x), work, pace=1 / reckoned_seconds(1.0, self.x.device))

    def run(self) -> Solution | CollapsedBound:
        """Find the best start, climb, double the draws until they do not matter, and condition on all data."""
        with progress_bar(self.progress, "evaluations") as self._bar:
            self._learn_in_time()
            solution = self._posterior or self._condition()
            self._measure_draws(solution)
            self._record(solution.log_evidence)
        return solution

    def learn(self) -> None:
        """The same without the posterior, for which no time is left."""
        self.limit = TimeLimit(self.options.max_seconds)
        with progress_bar(self.progress, "evaluations") as self._bar:
            self._learn_in_time()

    def _learn_in_time(self) -> None:
        """All stages that there is time for. Where it ends before, the posterior may still have more draws."""
        self._clock = time.perf_counter() - self.seconds
        self.model.num_samples = self._first_samples
        try:
            if self.learned.parameters:
                self._learn()
        except Stopped:
            self._stage_done()
            samples = self.model.num_samples if self.stopped else self.limit.for_posterior(self.model.num_samples)
            if samples != self.model.num_samples:
                self.model.num_samples, self.draw_error, self._posterior = samples, None, None
        self.converged = self.converged or not self.learned.parameters

    def _learn(self) -> None:
        """All stages: from every start, then with more and more rows, then with more and more draws."""
        start, moved, search = None, math.inf, None
        if len(self.starts) > 1:
            first, last = self._first_samples or 0, self._last_samples or 0
            more = [samples for samples in (LEAST_SAMPLES, 2 * LEAST_SAMPLES) if first < samples <= last]
            search = BestStart(
                self.objective, self.starts, self._start_rows, self.num_samples, more, self._climb, self._is_late
            )
            start, moved = search.find(self._stage), search.moved
        if self._start_rows < self._num_learned:  # more rows say more than more draws
            self.model.num_samples, moved = self._first_samples, math.inf
        top = self._with_more_draws(self._with_more_rows(start, search), moved)
        self.learned.set(top.vector)
        self.converged = self._stages.late_after is None  # a start that was left out might lead higher
        self._between_stages()

    def _stage(self, climb: Callable[..., Top], *arguments: Any) -> Top:
        """The top that this climb finds."""
        return self._stages.top(climb, *arguments, before=self._between_stages)

    def _between_stages(self) -> None:
        self._snapshot = self._state()
        self._stage_done()

    def _is_late(self) -> bool:
        """Whether the search for the best start has taken its share of the time."""
        return self._stages.is_late(self.seconds > _SEARCH * self.limit.to_learn(self.model.num_samples))

    def _is_late_for(self, samples: int) -> bool:
        """Whether no time is left to learn with so many draws, and to condition with them."""
        return self._stages.all_done and self.seconds >= self.limit.to_learn(samples)

    def _stage_done(self) -> None:
        if self.after_step is not None:
            self.after_step(self)

    def _with_more_rows(self, top: Top | None, search: BestStart | None) -> list[Top]:
        """Climb with a quarter of the rows of the next stage: few evaluations with all rows are needed then.

        The more rows there are, the more tops the evidence has. So before all data are seen, narrower and wider orbits are
        tried once more. Those that are about as high as the best go on beside it.
        """
        rungs = [rows for rows in (self._num_learned // 4**k for k in (3, 2, 1)) if rows >= _LEAST_RUNG]
        before = self._start_rows
        for rows in rungs:
            top = self._stage(self._climb_rows, top, before, rows)
            before = rows
        sees_all = self._num_learned == len(self.x)
        if top is None or search is None or not (rungs and sees_all and self.learned.is_reach.any()):
            return [self._stage(self._climb_rows, top, before, self._num_learned)]
        rivals = search.beside(top, before, self._stage)
        tops = self._each(rivals, self._climb_rows, before, self._num_learned)
        tops.sort(key=lambda top: -top.value)
        if len(tops) > 1:
            self.learned.set(tops[0].vector)
            self.objective.local = None
            noise = 2 * self._noise_of_draws()
            tops = [top for top in tops if top.value >= tops[0].value - max(TIE, noise)]
        return tops

    def _with_more_draws(self, tops: list[Top], moved: float) -> Top:
        """Climb with twice the draws, until that gains little and ends at about the same evidence. The best of several.

        ``moved`` is what the present number of draws has changed, where fewer were tried.
        """
        samples = self.model.num_samples
        if samples is not None and samples >= LEAST_SAMPLES and moved < TOLERANCE:
            self.draw_error = moved
            return tops[0]
        while samples is not None and samples != self._last_samples:
            samples = min(2 * samples, self.most_samples)
            if self._is_late_for(samples):
                self.learned.set(tops[0].vector)
                raise Stopped
            self.model.num_samples = samples
            further = self._each(tops, self._climb_draws)
            # The two tops may agree by chance, although other draws would move the parameters.
            both = zip(tops, further, strict=True)
            moves = [max(abs(after.value - before.value), after.value - after.first_value) for before, after in both]
            if len(tops) > 1:
                self._posterior = None  # it may be that of another
            undecided = still_tied(further, moves)
            tops, self.draw_error = [top for top, _ in undecided], undecided[0][1]
            if samples >= LEAST_SAMPLES and self.draw_error < TOLERANCE:
                break
        return tops[0]

    def _each(self, tops: list[Top], climb: Callable[..., Top], *arguments: Any) -> list[Top]:
        """Where climbs from these tops lead. A run that is stopped meanwhile is left at the best of them."""
        found: list[Top] = []
        try:
            for top in tops:
                found.append(self._stage(climb, top, *arguments))
        except Stopped:
            if found:
                self.learned.set(max(found, key=lambda top: top.value).vector)
            raise
        return found

    def _climb_rows(self, top: Top | None, before: int, rows: int) -> Top:
        """Climb from the top with fewer rows: the more data there are, the more the evidence curves."""
        if top is not None:
            self.learned.set(top.vector)
        self.objective.local = None
        curvature = None if top is None or top.curvature is None else top.curvature * (before / rows)
        with self.objective.subset(rows):
            return self._climb(self._enough(self._noise_of_draws()), curvature)

    def _climb_draws(self, top: Top) -> Top:
        """Climb from the top with fewer draws. With many rows there is no climb if the evidence has hardly moved."""
        self.learned.set(top.vector)
        enough_draws = self.model.num_samples is not None and self.model.num_samples >= LEAST_SAMPLES
        many_rows = self._num_learned > _LEAST_RUNG
        with self.objective.subset(self._num_learned):
            posterior = self._condition() if many_rows and self._num_learned == len(self.x) else None
            again = self.objective.value() if posterior is None else posterior.log_evidence + self.objective.log_prior()
            self.draw_error = abs(again - top.value)
            if enough_draws and many_rows and self.draw_error < TOLERANCE:
                self._posterior = posterior
                return top._replace(value=again, first_value=again)
            if enough_draws and self.draw_error < SETTLED:
                return self._with_fewer_draws(top)
            return self._climb(self._enough(self.draw_error), top.curvature)

    def _with_fewer_draws(self, top: Top) -> Top:
        """The last climb, with half of the draws where that changes nothing: it costs a quarter."""
        samples = self.model.num_samples
        assert samples is not None
        self.model.num_samples = samples // 2
        top = self._climb(SETTLED, top.curvature)
        self.model.num_samples = samples
        value = self.objective.value()
        return top._replace(value=value, first_value=value)

    def _enough(self, noise: float) -> float:
        """Nats an iteration, below which a climb with the present rows and draws ends; ``noise``: what other draws change."""
        rows, samples = len(self.model.x), self.model.num_samples
        # With so few rows or draws it is not the last stage.
        few_draws = samples is not None and self.num_samples is None and samples < min(LEAST_SAMPLES, self.most_samples)
        early = few_draws or rows < self._num_learned
        finest = _OF_DRAWS * noise
        if rows <= _LEAST_RUNG:  # evaluations cost little
            finest = min(finest, EARLY_SETTLED)
        # Of many data, only some are learned from: what these determine is not worth many digits.
        return max(EARLY_SETTLED if early else SETTLED, finest, _OF_ROWS * rows)

    def _noise_of_draws(self) -> float:
        """By how much the evidence would differ here with other draws, where there are many rows.

        Draws that the user fixed are a model of their own.
        """
        if self.model.num_samples is None or self.num_samples is not None or len(self.model.x) <= _LEAST_RUNG:
            return 0.0
        return abs(self.objective.log_evidence(other=1) - self.objective.log_evidence())

    def _condition(self) -> Solution | CollapsedBound:
        """The posterior of the present rows."""
        return self.objective.condition()

    def _measure_draws(self, solution: Solution | CollapsedBound) -> None:
        """What other draws change, or half as many: measured on the data learned from, and in proportion to all data."""
        samples = self.model.num_samples
        if samples is None:
            return
        with self.objective.subset(self._num_learned):
            some = self._num_learned < len(self.x)
            here = self.objective.log_evidence() if some else solution.log_evidence
            other = self.objective.log_evidence(other=1)
            if self.draw_error is None and self.num_samples is None:
                self.model.num_samples = samples // 2
                self.draw_error = abs(here - self.objective.log_evidence())
                self.model.num_samples = samples
        self.evidence_error = max(self.draw_error or 0.0, abs(other - here)) / 2 * len(self.x) / self._num_learned

    def _climb(self, enough: float, curvature: Curvature | None = None) -> Top:
        """To the top from here. The model is left there, or at the best point so far if the run is stopped."""
        begin = self.learned.get()
        goes_on = bool(self._stages.tops) and np.array_equal(begin, self._stages.tops[-1].vector)
        self._climb_number += bool(self.history) and not goes_on
        climb = Climb(self._objective, len(self.model.x), enough, curvature, self._record)
        try:
            return climb.to_top(begin)
        finally:
            if climb.best is not None:
                self.learned.set(climb.best[1])

    def _objective(self, vector: Vector) -> tuple[float, Vector]:
        """Evaluate the objective once, if the budget allows."""
        self.seconds = time.perf_counter() - self._clock
        if self.stopped or self.fraction() >= 1.0:
            raise Stopped
        self.steps += 1
        self._bar.update()
        found = self.objective(vector)
        if self.model.orbit is self._orbit:
            took = time.perf_counter() - self._clock - self.seconds
            self.limit.took(took, len(self.model.x), self.model.num_samples)
        return found

    def _record(self, value: float) -> None:
        self.seconds = time.perf_counter() - self._clock
        record = self._described(value)
        self.history.append(record)
        self._bar.set_postfix_str(headline(record))
        if self.callback is not None:
            self.callback(record)

    def _described(self, value: float) -> Record:
        """The record of this moment."""
        return {
            "step": self.steps,
            "seconds": self.seconds,
            "bound": value,
            "num_samples": self.model.num_samples,
            "rows": len(self.model.x),
            "jitter": self.objective.jitter,
            "climb": self._climb_number,
            "without_orbit": self.model.orbit is not self._orbit,
            "orbit": self._orbit.describe().to_dict(),
            **hyperparameters(self.model.kernel, self.likelihood),
        }

    def _state(self) -> dict[str, Any]:
        return {
            "objective": self.objective.state_dict(),
            "stages": self._stages.state_dict(),
            "climb": self._climb_number,
            "steps": self.steps,
            "seconds": self.seconds,
            "history": list(self.history),
        }

    def state_dict(self) -> dict[str, Any]:
        """The state in which the current stage began."""
        return self._snapshot

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the beginning of a stage."""
        state = copied_to(torch.device("cpu"), state)
        self.objective.load_state_dict(state["objective"])
        self._stages.load_state_dict(state["stages"])
        self.steps, self.seconds, self.history = state["steps"], state["seconds"], state["history"]
        self._climb_number = state["climb"]
        self._snapshot = self._state()
