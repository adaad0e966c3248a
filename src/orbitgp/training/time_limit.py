"""How much of a limit of time is for learning, and how much for what follows.

When learning ends, an evaluation is still under way. Then the posterior of all rows is made, which takes as long as many
evaluations of the rows that were learned from, and the evidence is measured with other draws. What that costs says how many
evaluations it is worth, and evaluations on this machine say how long each of them takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from orbitgp.inference.cost import CONDITIONING, Workload

_TELLING = 0.25  # of the rows that are learned from: as many tell how long evaluations take
_MEASURES = 2  # of the evidence, without a gradient: with these draws and with others


@dataclass
class TimeLimit:
    """A limit for learning from some rows and conditioning on all; without ``work``, all of it is for learning."""

    seconds: float | None
    learn_rows: int = 0
    rows: int = 0
    work: Workload | None = None
    pace: float = 1.0  # seconds of this machine for one that was reckoned

    def took(self, seconds: float, rows: int, samples: int | None) -> None:
        """An evaluation of so many rows with so many draws took so long. Those of few rows tell little of many."""
        if self.work is not None and rows >= _TELLING * self.learn_rows:
            self.pace = seconds / self._with(self.work, samples).evaluation(rows).seconds

    def to_learn(self, samples: int | None) -> float:
        """Seconds for learning, if the posterior will have so many draws: all but what follows takes, or its share."""
        if self.seconds is None:
            return inf
        if self.work is None:
            return self.seconds
        work = self._with(self.work, samples)
        after = work.evaluation(self.learn_rows).seconds + work.conditioning(self.rows).seconds
        after += 0.0 if samples is None else _MEASURES * work.conditioning(self.learn_rows).seconds
        return self.seconds - min(self.pace * after, CONDITIONING * self.seconds)

    def allows(self, evaluations: int, rows: int, samples: int | None, spent: float) -> bool:
        """Whether so many evaluations may follow when so many seconds are spent."""
        if self.seconds is None or self.work is None:
            return True
        seconds = self._with(self.work, samples).evaluation(rows).seconds
        return spent + self.pace * evaluations * seconds <= self.seconds

    @staticmethod
    def _with(work: Workload, samples: int | None) -> Workload:
        return work if samples is None else replace(work, samples=samples)
