"""How much of a limit of time is for learning, and how much for what follows.

When learning ends, an evaluation is still under way. Then the posterior of all rows is made, and the evidence is
measured with fresh draws. What that costs says how many evaluations it is worth, and evaluations on this machine say
how long each of them takes. The posterior may have more draws than were learned with: making it once with twice the
draws often gains more than the last evaluations of a climb do, in the same time. On slow machines it may have fewer.

A sparse fit makes passes over all rows when learning is over: for the last q(u), the evidence, and its upper bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf

import torch

from orbitgp.inference import processes
from orbitgp.planning.cost import CONDITIONING, Workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import CHECKED_ROWS, FIRST_DRAWS, SKETCH_ROWS

_QUICK = 2.0  # seconds of what follows a run that was stopped, for each of its parts


@dataclass
class TimeLimit:
    """A limit for learning from some rows and conditioning on all; without ``work``, all of it is for learning.

    ``work`` has as many draws as the model may have. ``pace``: measured over nominal seconds.
    """

    seconds: float | None
    learn_rows: int = 0
    rows: int = 0
    work: Workload | None = None
    pace: float = 1.0

    def record_evaluation(self, seconds: float, rows: int, samples: int | None, load: float = 0.0) -> None:
        """An evaluation took this long, and the run so far ``load`` times as long as this process was at work.

        Those of less than a quarter of the rows learned from tell little of these; then the load does.
        """
        if self.work is not None and 4 * rows >= self.learn_rows:
            self.pace = seconds / self._with(samples).evaluation(rows).seconds
        elif self.work is not None:
            self.pace = max(self.pace, load)

    def evaluation_seconds(self, rows: int, samples: int | None) -> float:
        """What an evaluation takes at the nominal speed; nothing where that is not known."""
        return 0.0 if self.work is None else self.work.evaluation_seconds(rows, samples)

    def to_learn(self, samples: int | None) -> float:
        """Seconds for learning with as many draws: all but what follows takes, or its share."""
        if self.seconds is None or self.work is None:
            return inf if self.seconds is None else self.seconds
        last = self.pace * self._with(samples).evaluation(self.learn_rows).seconds
        return self.seconds - min(last + self._after(self.posterior_draws(samples)), CONDITIONING * self.seconds)

    def posterior_draws(self, samples: int | None) -> int | None:
        """The draws of the posterior when the time to learn ends with ``samples``.

        Twice as many as long as that takes a quarter of the time at most. Half as many where it takes more.
        """
        if self.seconds is None or self.work is None or samples is None:
            return samples
        while 2 * samples <= self.work.samples and 4 * self._after(2 * samples) <= self.seconds:
            samples *= 2
        while samples >= FIRST_DRAWS and self._after(samples) > CONDITIONING * self.seconds:
            samples //= 2
        return samples

    def allows(self, evaluations: int, rows: int, samples: int | None, spent: float) -> bool:
        """Whether there is time for more evaluations when some seconds are spent."""
        if self.seconds is None or self.work is None:
            return True
        return spent + self.pace * evaluations * self._with(samples).evaluation(rows).seconds <= self.seconds

    def quick_posterior(self, rows: int, samples: int | None) -> tuple[int, int | None]:
        """Rows and draws of a posterior for somebody who does not want to wait: fewer draws first, then fewer rows."""
        while self.work is not None and self.pace * self._with(samples).conditioning(rows).seconds > _QUICK:
            if samples is not None and samples > FIRST_DRAWS:
                samples //= 2
            else:
                rows = 3 * rows // 4
        return rows, samples

    def checked_rows(self, rows: int, samples: int | None, sets: int, spent: float) -> int:
        """Rows on which sets of fresh draws are measured when some seconds are spent: fewer if little time is left."""
        rows = min(rows, CHECKED_ROWS)
        while self.seconds is not None and self.work is not None and rows > SKETCH_ROWS:
            if spent + self._after(samples, rows, sets) <= self.seconds:
                break
            rows = 3 * rows // 4
        return rows

    def _after(self, samples: int | None, checked: int = CHECKED_ROWS, sets: int = 3) -> float:
        """Seconds of what follows learning. Fresh draws take a posterior for each set, for each pair, and one more."""
        work, checked = self._with(samples), min(self.learn_rows, checked)
        measures = 0.0 if samples is None else (sets * (sets + 1) / 2 + 1) * work.conditioning(checked).seconds
        return self.pace * (work.conditioning(self.rows).seconds + measures)

    def _with(self, samples: int | None) -> Workload:
        assert self.work is not None
        return self.work if samples is None else replace(self.work, samples=samples)


@dataclass
class TimeLeft:
    """What is left of a limit for a sparse fit when learning is over; without ``seconds`` there is no limit."""

    seconds: float | None
    spent: float = 0.0
    pace: float = 1.0  # measured over nominal seconds

    def hurry(self) -> None:
        """Leave a few seconds to what follows a run that was stopped. Processes would do so at different moments."""
        if processes.count() == 1:
            self.seconds = min(self.seconds or inf, self.spent + 3 * _QUICK)

    def share(self) -> float:
        """What the next part of the fit may take, in nominal seconds: a sixth of the limit, or half of what is left."""
        if self.seconds is None:
            return TrainerSettings.exact_seconds
        seconds = min(self.seconds / 6, max(0.0, self.seconds - self.spent) / 2)
        # Processes that share the data must make the same passes, and have different clocks.
        share: float = processes.broadcast(seconds / self.pace)
        return share

    @contextmanager
    def timed(self, nominal: float) -> Iterator[None]:
        """Count what this takes, and learn from it how long the rest takes."""
        start = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # a GPU may still be at work
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        self.spent += took
        self.pace = took / nominal
