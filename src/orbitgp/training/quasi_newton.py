"""Learning by the exact evidence: few data, a deterministic objective, quasi-Newton steps to the top.

Where all data are conditioned on exactly (``inference.exact``), the evidence and its gradient have no noise: draws of
the orbit are fixed and shared by all data. Kernel, likelihood, feature map and orbit then climb together by BFGS, without
learning rates. Three things make that safe and quick:

- **Starts.** The evidence may have several tops over the reach of an orbit. Narrower and wider starts are each brought to their
  top on some of the data, with few draws, and the best goes on.
- **Draws.** S fixed draws are a finite orbit, a model of its own. S doubles until the evidence moves by less than a tolerance.
  Each stage begins with the curvature that the last one has learned.
- **Fresh draws.** What was fitted to draws is scored on others: the evidence that counts is that of the last S, whose draws
  contain those of no stage before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor, nn

from orbitgp.inference.exact import ExactGP, Solution
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit
from orbitgp.training.diagnostics import Record, hyperparameters

Vector = Float[np.ndarray, " parameters"]

STARTS = (1.0, 0.25, 4.0)  # multiples of the orbit's reach
START_ROWS = 300  # data that a start is judged by
FIRST_SAMPLES, LEAST_SAMPLES, MOST_SAMPLES = 8, 32, 128  # draws of an infinite orbit: in the first stage, and in the last
TOLERANCE = 1.0  # nats by which the evidence may move when S doubles
SETTLED = 0.02  # nats an iteration, below which a stage ends
START_SETTLED = 1.0  # the same, for a start
_MANY = 300  # parameters, above which curvature is kept in part only
_PENALTY = 1e6  # nats below the best: what a point gets at which the evidence cannot be computed


class Stopped(Exception):
    """The run was asked to stop, or its time is over."""


@dataclass
class QuasiNewton:
    """One run: :meth:`run` leaves the model conditioned on all data, at the best parameters found."""

    model: ExactGP
    likelihood: Likelihood
    y: Float[Tensor, "rows *outputs"]
    max_steps: int | None = None
    max_seconds: float | None = None
    starts: tuple[float, ...] = STARTS
    callback: Callable[[Record], None] | None = None
    history: list[Record] = field(default_factory=list)
    stopped: bool = False
    steps: int = 0  # evaluations of the evidence with its gradient
    solution: Solution | None = None

    def __post_init__(self) -> None:
        bias = self.model.prior_mean.bias
        self.parameters = [p for p in self._modules().parameters() if p.requires_grad and p is not bias]
        self._begin = time.perf_counter()
        self._best: tuple[float, Vector] | None = None
        self._hessian: np.ndarray | None = None
        self._local: Tensor | None = None

    def _modules(self) -> nn.ModuleList:
        return nn.ModuleList([self.model, self.likelihood])

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._begin

    def stop(self) -> None:
        """End the run after the evaluation that it is in."""
        self.stopped = True

    def run(self) -> Solution:
        """Find the best start, climb, double the draws until they do not matter, and condition on all data."""
        try:
            if self.parameters:
                self._choose_start()
                self._climb_all_stages()
        except Stopped:
            self._restore()
        self.solution = self.model.condition(self.likelihood, self.y, self._local)
        self._record(self.solution.log_evidence)
        return self.solution

    def _choose_start(self) -> None:
        """Go on from the best of several reaches of the orbit, each brought to its top on some of the data."""
        reaches = self.model.orbit.reaches()
        if not reaches or len(self.starts) < 2:
            return
        begin = self._vector()
        ends: list[tuple[float, Vector]] = []
        with self._subset(START_ROWS), self._draws(min(FIRST_SAMPLES, self._most_samples())):
            for multiple in self.starts:
                self._set(begin)
                with torch.no_grad():
                    for reach in reaches:
                        reach.mul_(multiple)
                self._forget()
                ends.append(self._climb(START_SETTLED))
        self._forget()
        self._set(max(ends, key=lambda end: end[0])[1])

    def _climb_all_stages(self) -> None:
        """Climb with S draws, look at 2 S, and go on there unless the evidence agrees."""
        most, samples = self._most_samples(), min(FIRST_SAMPLES, self._most_samples())
        self.model.num_samples = samples if most else None
        value, _ = self._climb()
        while samples < most:
            samples = min(most, 2 * samples)
            self.model.num_samples = samples
            self._best = None
            if samples < LEAST_SAMPLES:
                value, _ = self._climb()
                continue
            again = self.model.condition(self.likelihood, self.y, self._local).log_evidence
            if abs(again - value) < TOLERANCE:
                return
            value, _ = self._climb()

    def _most_samples(self) -> int:
        """The largest S: all elements of a finite orbit (0 stands for that), or a cap."""
        return 0 if isinstance(self.model.orbit, FiniteOrbit) else MOST_SAMPLES

    @contextmanager
    def _draws(self, samples: int) -> Iterator[None]:
        before = self.model.num_samples
        self.model.num_samples = samples or None
        try:
            yield
        finally:
            self.model.num_samples = before

    @contextmanager
    def _subset(self, rows: int) -> Iterator[None]:
        """Some of the data, in place of all."""
        x, y = self.model.x, self.y
        if len(x) > rows:
            chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:rows].to(x.device)
            self.model.x, self.y = x[chosen], y[chosen]
        try:
            yield
        finally:
            self.model.x, self.y = x, y

    def _climb(self, enough: float = SETTLED) -> tuple[float, Vector]:
        """To the top from here: the best evidence and where it is. The model is left there."""
        last = [math.inf, math.inf]

        def settled(intermediate_result: object) -> None:
            value = -float(intermediate_result.fun)  # type: ignore[attr-defined]
            self._record(value)
            last[:] = [last[1], -value]
            if last[0] - last[1] < enough:
                raise StopIteration

        start = self._vector()
        first = self._objective(start)
        scale = 1.0 / max(1.0, float(np.linalg.norm(first[1])))
        options: dict[str, Any] = {"maxcor": 30}
        method = "L-BFGS-B"
        if len(start) <= _MANY:
            inverse = np.eye(len(start)) * scale if self._hessian is None else self._hessian
            options, method = {"hess_inv0": inverse, "gtol": 1e-2}, "BFGS"
        found = minimize(self._objective, start, jac=True, method=method, options=options, callback=settled)
        if method == "BFGS" and np.all(np.isfinite(found.hess_inv)):
            self._hessian = 0.5 * (found.hess_inv + found.hess_inv.T)
        assert self._best is not None
        self._restore()
        return self._best

    def _objective(self, vector: Vector) -> tuple[float, Vector]:
        """Minus the log evidence (and priors), and its gradient."""
        if self.stopped or (self.max_seconds is not None and self.seconds > self.max_seconds):
            raise Stopped
        if self.max_steps is not None and self.steps >= self.max_steps:
            raise Stopped
        self._set(vector)
        for parameter in self.parameters:
            parameter.grad = None
        self.steps += 1
        try:
            solution = self.model.evidence_with_gradient(self.likelihood, self.y, self._local)
            value = solution.log_evidence
            for _, module, prior, closure, _ in self.model.kernel.named_priors():
                density = prior.log_prob(closure(module)).sum()
                density.backward()
                value += float(density)
            gradient = self._gradient()
        except FloatingPointError:
            value, gradient = math.nan, np.zeros_like(vector)
        if not (math.isfinite(value) and np.all(np.isfinite(gradient))):
            if self._best is None:
                raise FloatingPointError("the evidence is not finite at the start: scale the inputs or change the kernel.")
            return _PENALTY - self._best[0], np.zeros_like(vector)
        self._local = solution.local
        if self._best is None or value > self._best[0]:
            self._best = value, vector.copy()
        return -value, -gradient

    def _gradient(self) -> Vector:
        zeros = (p.new_zeros(p.shape) if p.grad is None else p.grad for p in self.parameters)
        return np.concatenate([g.detach().double().cpu().numpy().ravel() for g in zeros])

    def _vector(self) -> Vector:
        return np.concatenate([p.detach().double().cpu().numpy().ravel() for p in self.parameters])

    @torch.no_grad()
    def _set(self, vector: Vector) -> None:
        start = 0
        for parameter in self.parameters:
            stop = start + parameter.numel()
            parameter.copy_(torch.from_numpy(vector[start:stop]).reshape(parameter.shape))
            start = stop

    def _forget(self) -> None:
        """Nothing is known of another start: neither curvature, nor local parameters, nor a best point."""
        self._best, self._hessian, self._local = None, None, None

    def _restore(self) -> None:
        if self._best is not None:
            self._set(self._best[1])

    def _record(self, value: float) -> None:
        record: Record = {
            "step": self.steps,
            "seconds": self.seconds,
            "bound": value,
            "num_samples": self.model.num_samples,
            "rows": len(self.model.x),
            "orbit": self.model.orbit.describe().to_dict(),
            **hyperparameters(self.model.kernel, self.likelihood),
        }
        self.history.append(record)
        if self.callback is not None:
            self.callback(record)
