"""How much of a limit of time is for learning, where conditioning on more rows follows.

Conditioning on all rows takes as long as many evaluations of the rows that are learned from. The nominal cost says how many,
and evaluations on this machine say how long each of them takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from orbitgp.inference.cost import CONDITIONING, Workload


@dataclass
class TimeLimit:
    """A limit for learning from some rows and conditioning on all; without ``work``, all of it is for learning."""

    seconds: float | None
    learn_rows: int = 0
    rows: int = 0
    work: Workload | None = None
    pace: float = 1.0  # seconds of this machine for one at the nominal speed

    def took(self, seconds: float, rows: int, samples: int | None) -> None:
        """An evaluation of so many rows with so many draws took so long. Those of few rows tell little of many."""
        if self.work is not None and rows == self.learn_rows:
            self.pace = seconds / self._with(self.work, samples).evaluation(rows).seconds

    def to_learn(self, samples: int | None) -> float:
        """Seconds for learning, if the posterior will have so many draws: all but what conditioning takes, or its share."""
        if self.seconds is None:
            return inf
        if self.work is None:
            return self.seconds
        after = self.pace * self._with(self.work, samples).conditioning(self.rows).seconds
        return self.seconds - min(after, CONDITIONING * self.seconds)

    @staticmethod
    def _with(work: Workload, samples: int | None) -> Workload:
        return work if samples is None else replace(work, samples=samples)
