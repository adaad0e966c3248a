"""Learning by the exact evidence: few data, a deterministic objective, quasi-Newton steps to the top.

Where all data are conditioned on exactly (``inference.exact``), the evidence and its gradient have no noise: draws of the orbit
are fixed and shared by all data. Kernel, likelihood, feature map and orbit then climb together by BFGS, without learning rates.
Four things make that safe and quick:

- **Starts.** The evidence may have several tops over the reach of an orbit. Narrower and wider starts, and the simpler orbits
  that it contains (``starts``), are each brought close to their top on some of the data, with few draws. The best goes on.
  Where there are many starts, very few data say which of them lead to different orbits. The model without the orbit is tried
  from several lengthscales: an orbit that contains it does not end below it.
- **Draws.** S fixed draws are a finite orbit, a model of its own. S doubles until a climb with twice the draws gains little,
  and ends at about the same evidence. Each stage begins with the curvature that the last one has learned.
- **Rows.** Where learning by all data would take too long, it sees the first ``learn_rows`` of them in an order whose every
  beginning stands for the whole. The posterior is that of all data.
- **Fresh draws.** What was fitted to draws is scored on others: the evidence that counts is that of the last S.

A run is a sequence of stages, each determined by the state in which it begins. That state is what a checkpoint holds, so a run
that continues from one ends in the same place as a run that was never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from torch import Tensor

from orbitgp.inference.cost import FIRST_SAMPLES
from orbitgp.inference.exact import ExactGP, Solution
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, Identity
from orbitgp.training.diagnostics import Record, headline, hyperparameters
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.options import TrainerSettings
from orbitgp.training.priors import log_prior
from orbitgp.training.progress import progress_bar
from orbitgp.training.starts import LENGTHS, move_to, narrow_start, possible_starts, scale_lengths
from orbitgp.training.state import copied_to

LEAST_SAMPLES, MOST_SAMPLES = 32, 128  # draws of an infinite orbit in the last stage
TOLERANCE = 1.0  # nats by which the evidence may move when S doubles
SETTLED = 0.02  # nats an iteration, below which a stage ends
EARLY_SETTLED = 0.2  # the same, for a start, and for a stage between the first and the last
_SKETCH_ROWS = 50  # many starts are first tried with so few rows, where there are twice as many
_FINALISTS = 4  # starts that lead to different orbits, at most: they begin again, with more rows
_LEAST_RUNG = 300  # rows, below which no number of rows is climbed with between the starts and the rows to learn from
_OF_ROWS = 2e-5  # nats a row, below which an iteration gains too little
_OF_DRAWS = 0.05  # nothing finer is sought than this part of what other draws would change, or a doubling of S has moved
_MANY = 300  # parameters, above which curvature is kept in part only
_FLAT = 0.5  # nats for a natural unit of a parameter
_UNKNOWN = 10.0  # rows for each nat by which the evidence curves at least, in natural units of a parameter
_HOPELESS = 10.0  # nats below the best, with very few rows
_NEAR = 0.15  # natural units by which the reaches of one orbit differ
_STALLED = 12  # evaluations of one line search, after which rounding hides what is left to gain
_PENALTY = 1e6  # nats below the best: what a point gets at which the evidence cannot be computed


class Stopped(Exception):
    """The run was asked to stop, or its budget is spent."""


class _Stalled(Exception):
    """A line search finds no better point."""


class Top(NamedTuple):
    """Where a climb has ended: the evidence, the parameters, and the inverse curvature there as far as it is known."""

    value: float
    vector: Vector
    curvature: np.ndarray | None


@dataclass
class QuasiNewton:
    """One run of learning by the exact evidence: :meth:`run` leaves the model conditioned on all data, at the best parameters.

    ``max_steps`` and ``max_seconds`` of the settings limit evaluations of the evidence and time; without them a run ends when
    it has converged. ``num_samples`` fixes the number of draws, ``most_samples`` limits it. Parameters are
    learned from ``learn_rows`` of the data (None: all).
    """

    model: ExactGP
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
        self.learned = LearnedVector(self.model, self.likelihood)
        self.history: list[Record] = []
        self.steps = 0  # evaluations of the evidence with its gradient
        self.seconds = 0.0
        self.stopped = False
        self.converged = False
        self.draw_error = 0.0  # what the last doubling of draws has moved
        self.evidence_error = 0.0  # two of these cover other draws
        self._jitter = 0.0  # the share of the diagonal that the last factorisation needed
        self._clock = time.perf_counter()
        self._steepness = 0.0  # the largest slope at the last point, in nats for a natural unit
        self._best: tuple[float, Vector] | None = None
        self._curvature: np.ndarray | None = None
        self._first_value = 0.0  # the evidence where the last climb began
        self._local: Tensor | None = None
        self._posterior: Solution | None = None  # that of all data, where the last stage has found it
        self._seen: tuple[Vector, float, Vector] | None = None  # the last point, and what was computed there
        # Which rows are learned from is left to chance; which of them a start sees first should not matter.
        self._order = representative_order(self.y, self.options.seed if self._num_learned < len(self.x) else 0)
        self._orbit = self.model.orbit  # which every record tells of, those of climbs without it, too
        self.starts = possible_starts(self.model.orbit, self.x)[: None if self.options.start_rows else 1]
        # The stages: a climb from each start, one for each finalist among them, those from the model without the orbit. Then
        # one for each number of rows, and of draws.
        self._sketches: list[Top] = []
        self._tops: list[Top] = []
        self._without_orbit: list[Top] | None = None  # None until they are tried
        self._rungs = 0
        self._begin = self.learned.get()
        self._samples = self._first_samples()
        self._value: float | None = None
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
        by_time = 0.0 if self.options.max_seconds is None else self.seconds / self.options.max_seconds
        return max(by_steps, by_time)

    def run(self) -> Solution:
        """Find the best start, climb, double the draws until they do not matter, and condition on all data."""
        self._clock = time.perf_counter() - self.seconds
        with progress_bar(self.progress, "evaluations") as self._bar:
            try:
                while self.learned.parameters and not self.converged:
                    self._stage()
                    self._snapshot = self._state()
                    if self.after_step is not None:
                        self.after_step(self)
            except Stopped:
                self._restore()
                if self.after_step is not None:
                    self.after_step(self)
            self.model.num_samples = self._samples
            solution = self._posterior or self.model.condition(self.likelihood, self.y, self._known_local())
            self._measure_draws(solution)
            self._record(solution.log_evidence)
        self.converged = self.converged or not self.learned.parameters
        return solution

    def _measure_draws(self, solution: Solution) -> None:
        """What other draws change, or half as many: measured on the data learned from, and in proportion to all data."""
        model = self.model
        if model.num_samples is None:
            return
        with self._learning():
            here = solution.log_evidence
            local = self._known_local()
            if len(model.x) < len(self.x):
                here = model.log_evidence(self.likelihood, self.y, local, model.seed)
            other = model.log_evidence(self.likelihood, self.y, local, model.seed + 1)
            self.evidence_error = max(self.draw_error, abs(other - here)) / 2 * len(self.x) / len(model.x)

    def _known_local(self) -> Tensor | None:
        """The local parameters of the present data, if they are known: a run that was stopped early knows those of fewer."""
        return self._local if self._local is not None and len(self._local) == len(self.y) else None

    def _stage(self) -> None:
        finalists = self._finalists()
        if len(self._sketches) < len(self.starts) > 1:
            self.learned.set(self._begin)
            move_to(self.starts[len(self._sketches)], self.model.orbit, self.model.kernel)
            self._sketches.append(self._climb_start(self._sketch_rows))
        elif len(self._tops) < len(finalists):
            # Few rows say where the orbit goes, but may leave kernel and noise in a corner.
            self._tops.append(self._climb_from(np.where(self.learned.is_reach, finalists[len(self._tops)], self._begin)))
        elif self._without_orbit is None and len(self.starts) > 1 and self.learned.is_reach.any():
            self._without_orbit = self._starts_without_orbit()
        elif self._value is None:
            self._climb_rung()
        else:
            with self._learning():
                self._double_draws()
        if self._value is not None and self._samples == self._last_samples():
            self.converged = True

    def _climb_start(self, rows: int) -> Top:
        """Bring the orbit close to its top on some of the data."""
        self._best, self._curvature, self._local = None, None, None
        with self.subset(rows):
            self.model.num_samples = self._first_samples()
            try:
                return self._climb(EARLY_SETTLED)
            except FloatingPointError:  # another start may do
                return Top(-math.inf, self._begin, None)

    def _starts_without_orbit(self) -> list[Top]:
        """Where the orbit ends if kernel and noise begin at their best without it; nothing where the other starts will do.

        Those begin with one lengthscale. They will do if it leads to the best top without the orbit, and they are not below
        that top. Otherwise the orbit begins as wide as it was found to be. If it ends below that top even so, it begins narrow,
        where it is almost the model without the orbit.
        """
        best = _highest(self._tops or self._sketches)
        tops: list[Top] = []
        try:
            without = [self._climb_without_orbit(length) for length in LENGTHS]
            top = _highest(without)
            enough = top.value - EARLY_SETTLED
            if without[0].value < enough or best.value < enough:
                tops.append(self._climb_from(np.where(self.learned.is_reach, best.vector, top.vector)))
            if tops and max(best.value, tops[0].value) < enough:
                self.learned.set(self._begin)
                move_to(narrow_start(self.model.orbit, self.x), self.model.orbit)
                tops.append(self._climb_from(np.where(self.learned.is_reach, self.learned.get(), top.vector)))
        except Stopped:
            self._best = best.value, best.vector
            raise
        return tops

    def _climb_from(self, vector: Vector) -> Top:
        """Bring kernel, noise and orbit close to their top, with the rows by which starts are compared."""
        self.learned.set(vector)
        return self._climb_start(self._start_rows)

    def _climb_without_orbit(self, length: float) -> Top:
        """Kernel and noise close to their top without the orbit. That has no draws, so it costs little."""
        model, orbit = self.model, self.model.orbit
        self.learned.set(self._begin)
        scale_lengths(length, model.kernel)
        model.orbit = Identity()
        try:
            return self._climb_start(self._start_rows)
        finally:
            model.orbit = orbit

    def _finalists(self) -> list[Vector]:
        """Where starts ended at different orbits, the best first, if more rows are to decide between them."""
        if len(self._sketches) < len(self.starts) or self._sketch_rows == self._start_rows:
            return []
        ranked = sorted(self._sketches, key=lambda top: -top.value)
        different: list[Vector] = []
        for value, vector, _ in ranked:
            apart = [np.abs(np.abs(vector) - np.abs(better))[self.learned.is_reach].max() for better in different]
            if value > ranked[0].value - _HOPELESS and all(distance > _NEAR for distance in apart):
                different.append(vector)
        return different[:_FINALISTS]

    @property
    def _start_rows(self) -> int:
        return min(self.options.start_rows, len(self.x))

    @property
    def _sketch_rows(self) -> int:
        many = len(self.starts) > _FINALISTS and self._start_rows >= 2 * _SKETCH_ROWS
        return _SKETCH_ROWS if many else self._start_rows

    def _climb_rung(self) -> None:
        """Climb with a quarter of the rows of the next rung: few evaluations with all rows are needed then."""
        rungs = [rows for rows in (self._num_learned // 4**k for k in (3, 2, 1)) if rows >= _LEAST_RUNG]
        rungs.append(self._num_learned)
        before, rows = [self._start_rows, *rungs][self._rungs], rungs[self._rungs]
        if self._sketches and not self._rungs:
            best = _highest([*(self._tops or self._sketches), *(self._without_orbit or [])])
            self.learned.set(best.vector)
            self._curvature = best.curvature
        self._best, self._local = None, None
        if self._curvature is not None:  # the more data there are, the more the evidence curves
            self._curvature = self._curvature * (before / rows)
        with self.subset(rows):
            value = self._climb_with(self._samples)
        self._rungs += 1
        if rows == self._num_learned:
            self._value = value

    def _double_draws(self) -> None:
        """Climb with twice the draws. They are enough if that gains little, and the evidence agrees with the last."""
        assert self._samples is not None
        assert self._value is not None
        last, self._samples = self._value, min(2 * self._samples, self.most_samples)
        if self._samples >= LEAST_SAMPLES and self._num_learned > _LEAST_RUNG and self._agrees(last):
            self.converged = True
            return
        self._best = None
        self._value = self._climb_with(self._samples)
        # The two tops may agree by chance, although other draws would move the parameters.
        self.draw_error = max(abs(self._value - last), self._value - self._first_value)
        self.converged = self._samples >= LEAST_SAMPLES and self.draw_error < TOLERANCE

    def _agrees(self, value: float) -> bool:
        """Whether the evidence with these draws is about the same. With many rows, a climb must be worth its time."""
        model, found = self.model, None
        model.num_samples = self._samples
        if len(model.x) == len(self.x):
            found = model.condition(self.likelihood, self.y, self._local)
            again = found.log_evidence
        else:
            again = model.log_evidence(self.likelihood, self.y, self._local, model.seed)
        self.draw_error = abs(again - value)
        agrees = self.draw_error < TOLERANCE
        self._posterior = found if agrees else None
        return agrees

    def _climb_with(self, samples: int | None) -> float:
        self.model.num_samples = samples
        rows = len(self.model.x)
        # With so few rows or draws it is not the last stage.
        few_draws = samples is not None and self.num_samples is None and samples < min(LEAST_SAMPLES, self.most_samples)
        early = few_draws or rows < self._num_learned
        noise = _OF_DRAWS * (self._noise_of_draws() if self._value is None else self.draw_error)
        if rows <= _LEAST_RUNG:  # evaluations cost little
            noise = min(noise, EARLY_SETTLED)
        # Of many data, only some are learned from: what these determine is not worth many digits.
        return self._climb(max(EARLY_SETTLED if early else SETTLED, noise, _OF_ROWS * rows)).value

    def _noise_of_draws(self) -> float:
        """By how much the evidence would differ here with other draws, where there are many rows.

        Draws that the user fixed are a model of their own.
        """
        if self.model.num_samples is None or self.num_samples is not None or len(self.model.x) <= _LEAST_RUNG:
            return 0.0
        local, seed = self._known_local(), self.model.seed
        here, other = (self.model.log_evidence(self.likelihood, self.y, local, seed + i) for i in range(2))
        return abs(other - here)

    def _first_samples(self) -> int | None:
        """Draws of the first stage; None where a finite orbit is enumerated."""
        if isinstance(self.model.orbit, FiniteOrbit) or self.num_samples is not None:
            return self.num_samples
        return FIRST_SAMPLES

    def _last_samples(self) -> int | None:
        fixed = isinstance(self.model.orbit, FiniteOrbit) or self.num_samples is not None
        return self.num_samples if fixed else self.most_samples

    def _learning(self) -> AbstractContextManager[None]:
        """The data to learn from, in place of all."""
        return self.subset(self._num_learned)

    @property
    def _num_learned(self) -> int:
        return len(self.x) if self.learn_rows is None else min(self.learn_rows, len(self.x))

    @contextmanager
    def subset(self, rows: int) -> Iterator[None]:
        """Some of the data, in place of all."""
        x, y = self.model.x, self.y
        if len(x) > rows:
            chosen = self._order[:rows].to(x.device)
            self.model.x, self.y = x[chosen], y[chosen]
        try:
            yield
        finally:
            self.model.x, self.y = x, y

    def _climb(self, enough: float) -> Top:
        """To the top from here. The model is left there."""
        values: list[float] = []
        last = self.steps  # evaluations at the last iteration

        def objective(vector: Vector) -> tuple[float, Vector]:
            if self.steps - last > _STALLED:
                raise _Stalled
            return self._objective(vector)

        def after_iteration(intermediate_result: Any) -> None:
            nonlocal last
            last = self.steps
            value = -float(intermediate_result.fun)
            self._record(value)
            values.append(value)
            # Two iterations, as one alone may be unlucky; more where the slope says that curvature is not known yet.
            patience = 2 if self._steepness < _FLAT else 5
            if len(values) > patience and value - values[-1 - patience] < 2 * enough:
                raise StopIteration
            if self._seen is not None and self._left(-self._seen[2]) < enough:
                raise StopIteration

        self._seen = None
        start = self.learned.get()
        value, slope = self._objective(start)
        self._first_value = -value
        if self._left(slope) < enough:
            assert self._best is not None
            self._record(self._best[0])
            return Top(*self._best, self._curvature)
        options: dict[str, Any] = {"maxcor": 30}
        method = "L-BFGS-B"
        if len(start) <= _MANY:
            # The first step moves every parameter by one unit at most, or as the curvature of the last stage suggests.
            first = np.diag(1 / np.maximum(1.0, np.abs(slope)))
            options, method = {"hess_inv0": first if self._curvature is None else self._curvature, "gtol": 1e-2}, "BFGS"
        try:
            found = minimize(objective, start, jac=True, method=method, options=options, callback=after_iteration)
        except _Stalled:
            self._curvature = None
        else:
            if method == "BFGS":
                curvature = 0.5 * (found.hess_inv + found.hess_inv.T)
                self._curvature = curvature if _positive_definite(curvature) else None
        assert self._best is not None
        self._restore()
        return Top(*self._best, self._curvature)

    def _left(self, slope: Vector) -> float:
        """What is left to gain, by the curvature that the last stage has learned."""
        if self._curvature is None:
            return math.inf
        # What was learned on the way says little of directions that were hardly taken: any may be this flat.
        return 0.5 * float(slope @ self._curvature @ slope + slope @ slope * (_UNKNOWN / len(self.model.x)))

    def _objective(self, vector: Vector) -> tuple[float, Vector]:
        """Minus the log evidence (and priors), and its gradient."""
        if self._seen is not None and np.array_equal(self._seen[0], vector):
            return self._seen[1:]
        self.seconds = time.perf_counter() - self._clock
        if self.stopped or self.fraction() >= 1.0:
            raise Stopped
        self.learned.set(vector)
        self.steps += 1
        self._bar.update()
        value, gradient = math.nan, np.zeros_like(vector)
        try:
            solution = self.model.evidence_with_gradient(self.likelihood, self.y, self._local)
            value = solution.log_evidence + self._log_prior()
            gradient = self.learned.gradient()
        except FloatingPointError:
            pass
        if not (math.isfinite(value) and np.all(np.isfinite(gradient))):
            if self._best is None:
                raise FloatingPointError("the evidence is not finite at the start: scale the inputs or change the kernel.")
            return _PENALTY - self._best[0], np.zeros_like(vector)
        self._local, self._jitter = solution.local, solution.system.jitter
        self._steepness = float(np.abs(gradient).max())
        if self._best is None or value > self._best[0]:
            self._best = value, vector.copy()
        self._seen = vector.copy(), -value, -gradient
        return -value, -gradient

    def gradient_at(self, vector: Vector) -> Vector:
        """The gradient of the log evidence (and priors) there."""
        self.learned.set(vector)
        self.model.evidence_with_gradient(self.likelihood, self.y, self._known_local())
        self._log_prior()
        return self.learned.gradient()

    def _log_prior(self) -> float:
        """The log density of the priors on the kernel's hyperparameters; its gradient is added to them."""
        density = log_prior(self.model)
        if density.requires_grad:
            density.backward()
        return float(density.detach())

    def _restore(self) -> None:
        if self._best is not None:
            self.learned.set(self._best[1])

    def _record(self, value: float) -> None:
        self.seconds = time.perf_counter() - self._clock
        record: Record = {
            "step": self.steps,
            "seconds": self.seconds,
            "bound": value,
            "num_samples": self.model.num_samples,
            "rows": len(self.model.x),
            "jitter": self._jitter,
            "orbit": self._orbit.describe().to_dict(),
            **hyperparameters(self.model.kernel, self.likelihood),
        }
        self.history.append(record)
        self._bar.set_postfix_str(headline(record))
        if self.callback is not None:
            self.callback(record)

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": torch.from_numpy(self.learned.get()),
            "bias": self.model.prior_mean.bias.detach().clone(),
            "best": None if self._best is None else [self._best[0], torch.from_numpy(self._best[1].copy())],
            "curvature": _tensor(self._curvature),
            "local": self._local,
            "rungs": self._rungs,
            "sketches": [_packed(top) for top in self._sketches],
            "tops": [_packed(top) for top in self._tops],
            "without_orbit": None if self._without_orbit is None else [_packed(top) for top in self._without_orbit],
            "begin": torch.from_numpy(self._begin.copy()),
            "samples": self._samples,
            "value": self._value,
            "draw_error": self.draw_error,
            "steps": self.steps,
            "seconds": self.seconds,
            "history": list(self.history),
            "converged": self.converged,
        }

    def state_dict(self) -> dict[str, Any]:
        """The state in which the current stage began."""
        return self._snapshot

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the beginning of a stage."""
        state = copied_to(torch.device("cpu"), state)
        self.learned.set(state["parameters"].numpy())
        with torch.no_grad():
            self.model.prior_mean.bias.copy_(state["bias"])
        self._best = None if state["best"] is None else (state["best"][0], state["best"][1].numpy())
        self._curvature = None if state["curvature"] is None else state["curvature"].numpy()
        self._local = None if state["local"] is None else state["local"].to(self.x.device)
        self._sketches, self._tops = ([_unpacked(top) for top in state[name]] for name in ("sketches", "tops"))
        without = state["without_orbit"]
        self._without_orbit = None if without is None else [_unpacked(top) for top in without]
        self._begin, self._samples, self._value = state["begin"].numpy(), state["samples"], state["value"]
        self._rungs = state["rungs"]
        for name in ("draw_error", "steps", "seconds", "history", "converged"):
            setattr(self, name, state[name])
        self._snapshot = self._state()


def representative_order(y: Float[Tensor, "rows *outputs"], seed: int) -> Int[Tensor, " rows"]:
    """An order of the data whose every beginning stands for the whole: at random, with labels in their proportions."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    distinct, which, counts = torch.unique(y.cpu()[order], dim=0, return_inverse=True, return_counts=True)
    if len(distinct) > len(y) // 2:
        return order
    # The i-th of n rows with a label comes after about (i + 1/2) / n of all rows.
    by_label = torch.argsort(which, stable=True)
    number = torch.empty_like(order)
    number[by_label] = torch.arange(len(y)) - (counts.cumsum(0) - counts)[which[by_label]]
    return order[torch.argsort((number + 0.5) / counts[which], stable=True)]


def _tensor(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else torch.from_numpy(array.copy())


def _highest(tops: list[Top]) -> Top:
    return max(tops, key=lambda top: top.value)


def _packed(top: Top) -> list[Any]:
    """A top as a state holds it."""
    return [top.value, _tensor(top.vector), _tensor(top.curvature)]


def _unpacked(state: list[Any]) -> Top:
    value, vector, curvature = state
    return Top(value, vector.numpy(), None if curvature is None else curvature.numpy())


def _positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return bool(np.all(np.isfinite(matrix)))
