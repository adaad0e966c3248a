"""How much of a limit of time is for learning, and how much for what follows.

When learning ends, an evaluation is still under way. Then the posterior of all rows is made, which takes as long as many
evaluations of the rows that were learned from, and the evidence is measured with other draws. What that costs says how many
evaluations it is worth, and evaluations on this machine say how long each of them takes.

The posterior may have more draws than were learned with: making it once with twice the draws often gains more evidence than the
last evaluations of a climb do, in the same time.

A sparse fit makes passes over all rows when learning is over: for the last q(u), for the evidence, and for its upper bound.
Each of these may take a sixth of the time, but only half of what is left. It says how long passes take on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

import torch

from orbitgp.inference import processes
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Likelihood
from orbitgp.planning.cost import CONDITIONING, Workload, workload
from orbitgp.planning.device_speed import nominal_seconds
from orbitgp.planning.rungs import FIRST_DRAWS

_TELLING = 0.25  # of the rows that are learned from: as many tell how long evaluations take
_MEASURES = 2.25  # of the evidence, without a gradient: with these draws, with others, and with half as many
_PART = 1 / 6  # of the time for a sparse fit: what each part that follows learning may take
_QUICK = 2.0  # seconds of what follows a run that was stopped, for each of its parts
_POSTERIOR = 0.25  # of the time, for a posterior with more draws than were learned with


@dataclass
class TimeLimit:
    """A limit for learning from some rows and conditioning on all; without ``work``, all of it is for learning.

    ``work`` has as many draws as the model may have.
    """

    seconds: float | None
    learn_rows: int = 0
    rows: int = 0
    work: Workload | None = None
    pace: float = 1.0  # seconds of this machine for one that was reckoned

    def record_evaluation(self, seconds: float, rows: int, samples: int | None) -> None:
        """An evaluation of so many rows with so many draws took so long. Those of few rows tell little of many."""
        if self.work is not None and rows >= _TELLING * self.learn_rows:
            self.pace = seconds / self._with(self.work, samples).evaluation(rows).seconds

    def to_learn(self, samples: int | None) -> float:
        """Seconds for learning with so many draws: all but what follows takes, or its share."""
        if self.seconds is None:
            return inf
        if self.work is None:
            return self.seconds
        last = self.pace * self._with(self.work, samples).evaluation(self.learn_rows).seconds
        return self.seconds - min(last + self._after(self.posterior_draws(samples)), CONDITIONING * self.seconds)

    def posterior_draws(self, samples: int | None) -> int | None:
        """How many draws the posterior has when the time to learn ends with so many."""
        if self.seconds is None or self.work is None or samples is None:
            return samples
        while 2 * samples <= self.work.samples and self._after(2 * samples) <= _POSTERIOR * self.seconds:
            samples *= 2
        return samples

    def _after(self, samples: int | None) -> float:
        """Seconds of what follows learning, with so many draws."""
        assert self.work is not None
        work = self._with(self.work, samples)
        measures = 0.0 if samples is None else _MEASURES * work.conditioning(self.learn_rows).seconds
        return self.pace * (work.conditioning(self.rows).seconds + measures)

    def allows(self, evaluations: int, rows: int, samples: int | None, spent: float) -> bool:
        """Whether so many evaluations may follow when so many seconds are spent."""
        if self.seconds is None or self.work is None:
            return True
        seconds = self._with(self.work, samples).evaluation(rows).seconds
        return spent + self.pace * evaluations * seconds <= self.seconds

    def quick_posterior(self, rows: int, samples: int | None) -> tuple[int, int | None]:
        """Rows and draws of a posterior for somebody who does not want to wait: fewer draws first, then fewer rows."""
        while self.work is not None and self.pace * self._with(self.work, samples).conditioning(rows).seconds > _QUICK:
            if samples is not None and samples > FIRST_DRAWS:
                samples //= 2
            else:
                rows = 3 * rows // 4
        return rows, samples

    @staticmethod
    def _with(work: Workload, samples: int | None) -> Workload:
        return work if samples is None else replace(work, samples=samples)


def exact_limit(model: ExactGP, likelihood: Likelihood, seconds: float | None, learn_rows: int, draws: int | None) -> TimeLimit:
    """The limit of an exact fit, less what follows when learning is over."""
    work, pace = workload(model, likelihood, draws), 1 / nominal_seconds(1.0, model.x.device)
    return TimeLimit(seconds, learn_rows, len(model.x), work, pace)


@dataclass
class TimeLeft:
    """What is left of a limit for a sparse fit when learning is over; without ``seconds`` there is no limit."""

    seconds: float | None
    spent: float = 0.0
    pace: float = 1.0  # seconds of this machine for one that was reckoned

    def hurry(self) -> None:
        """Leave a few seconds to what follows a run that was stopped. Processes would do so at different moments."""
        if processes.count() == 1:
            self.seconds = min(self.seconds or inf, self.spent + 3 * _QUICK)

    def share(self) -> float:
        """What the next part of the fit may take, in seconds that are reckoned."""
        if self.seconds is None:
            return inf
        seconds = min(_PART * self.seconds, max(0.0, self.seconds - self.spent) / 2)
        # Processes that share the data must make the same passes, and have different clocks.
        share: float = processes.broadcast(seconds / self.pace)
        return share

    @contextmanager
    def timed(self, reckoned: float) -> Iterator[None]:
        """Count what this takes, and learn from it how long the rest takes. It was reckoned to take so many seconds."""
        start = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # a GPU may still be at work
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        self.spent += took
        self.pace = took / reckoned
