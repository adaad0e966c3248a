"""The stages of a run: climbs, each of which depends only on the tops that those before it have found.

These tops are what a checkpoint holds. A run that continues goes from stage to stage with the known tops, and climbs where they
end. What a clock has decided between two stages is decided once: a run that continues does the same, however late it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from orbitgp.training.climb import Top


class Stages:
    """The tops of all stages so far, and after how many of them the search for the best start met its limit, if it did."""

    def __init__(self) -> None:
        self.tops: list[Top] = []
        self.late_after: int | None = None
        self._known: Iterator[Top] = iter(())
        self._done = 0

    @property
    def all_done(self) -> bool:
        """Whether the run has come to where it was stopped, so that its clock counts again."""
        return self._done == len(self.tops)

    def top(self, climb: Callable[..., Top], *arguments: Any, before: Callable[[], None]) -> Top:
        """The top that this climb finds, or has found. ``before``: what to do between the last stage and a new one."""
        found = next(self._known, None)
        if found is None:
            if self.tops:
                before()
            found = climb(*arguments)
            self.tops.append(found)
        self._done += 1
        return found

    def is_late(self, by_the_clock: bool) -> bool:
        """Whether the search for the best start is over before its end: now, or here when the run was first made."""
        if by_the_clock and self.late_after is None and self.all_done:
            self.late_after = self._done
        return self.late_after is not None and self._done >= self.late_after

    def state_dict(self) -> dict[str, Any]:
        return {"tops": [top.packed() for top in self.tops], "late_after": self.late_after}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after these stages, from the first one on."""
        self.tops = [Top.unpacked(*parts) for parts in state["tops"]]
        self.late_after = state["late_after"]
        self._known, self._done = iter(list(self.tops)), 0
