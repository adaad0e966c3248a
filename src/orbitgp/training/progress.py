"""Progress of one or several fits: how much of their time is over, how long the rest takes, and what they have learned.

A terminal or a notebook shows one bar. Elsewhere there is nothing or, if asked for, a plain line every ten seconds. An
engine says how much of its run is over (:meth:`~orbitgp.training.run.Engine.progress`). The plan says what share of all
work each fit is, and the clock of this machine what the rest takes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from multiprocessing import parent_process
from typing import Any

from tqdm import tqdm

from orbitgp.training.records import Record, headline
from orbitgp.training.run import Engine


def is_watched() -> bool:
    """Whether a person sees a bar: in a terminal, or in a notebook where the output is none; not a worker's."""
    return parent_process() is None and ("ipykernel" in sys.modules or sys.stderr.isatty())


class Progress:
    """A bar around fits, in the order of ``seconds``, which are what each of them is planned to take.

    ``units`` of learned quantities, by name. ``lines``: whether to print plain lines where there is neither a terminal
    nor a notebook, with seconds of ``every`` between them. ``show``: None where a person watches, and the fits are
    long. Fits of workers, whose engine nobody here knows, count as planned.
    """

    def __init__(
        self,
        seconds: Sequence[float],
        units: Mapping[str, str] | None = None,
        lines: bool = False,
        show: bool | None = True,
        every: float = 10.0,
    ) -> None:
        self.seconds, self.units, self.every = list(seconds), units, every
        in_notebook, self.shown = "ipykernel" in sys.modules, is_watched()
        show = self.shown and sum(seconds) > every if show is None else show
        self.lines = lines and not self.shown
        self.done = 0  # fits
        self.name = ""
        self.latest: Record | None = None
        self.engine: Engine | None = None
        self.told = self.idle = time.monotonic()
        self.bar = tqdm(
            total=1.0,
            bar_format="{desc}{percentage:.0f} %|{bar:16}| {elapsed}{postfix}",
            file=_Cell() if in_notebook else sys.stderr if self.shown else StringIO(),
            dynamic_ncols=not in_notebook,
            leave=False,
            ascii=False,
            disable=not show or not (self.shown or self.lines),
        )
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        if not self.bar.disable:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self.shown and not self.bar.disable:  # a notebook keeps the last line
            self.bar.n = 1.0
            self.bar.set_postfix_str(self._learned(), refresh=True)
        self.bar.close()

    def teller(self, name: str = "", begun: float | None = None) -> Callable[[Mapping[str, Any]], None]:
        """A callback of ``fit`` for a model of this name, whose limit of time has begun at this moment."""
        tell: Any = partial(self.record)
        tell.begin, tell.begun = partial(self.begin, name=name), begun
        return tell

    def begin(self, engine: Engine, name: str = "") -> None:
        """A fit begins. If another one has not ended by a word, it ends now."""
        self.done += self.engine is not None
        self.engine, self.name, self.latest = engine, name, None

    def record(self, record: Record) -> None:
        """The fit has come this far."""
        self.latest = record

    def end(self, name: str = "") -> None:
        """A fit is done."""
        self.engine, self.name, self.latest, self.done = None, name, None, self.done + 1
        self.idle = time.monotonic()
        if self.lines and not self.bar.disable and self.done < len(self.seconds):
            self._print()

    def fraction(self) -> float:
        """How much of all the work is done."""
        seconds = [*self.seconds, *[max(self.seconds)] * (self.done + (self.engine is not None) - len(self.seconds))]
        if self.engine is not None:
            now = self.engine.progress() * seconds[self.done]
        else:  # of the fit of a worker the plan alone tells
            now = min(time.monotonic() - self.idle, 0.9 * sum(seconds[self.done : self.done + 1]))
        return (sum(seconds[: self.done]) + now) / (sum(seconds) or 1.0)

    def __str__(self) -> str:
        """A plain line."""
        seconds, fraction = float(time.time() - self.bar.start_t), self.fraction()
        rest = tqdm.format_interval(round(seconds * (1 / fraction - 1))) if fraction > 0.02 else ""
        many = f"{self.done} of {max(len(self.seconds), self.done)} models done" if len(self.seconds) > 1 else ""
        name = f"{self.name}: " if self.name else ""
        left, spent = rest and f"about {rest} left", tqdm.format_interval(round(seconds))
        return name + ", ".join(filter(None, [f"{100 * fraction:.0f} %, {spent}", left, many, self._learned()]))

    def _learned(self) -> str:
        """The latest record of a fit in a few words."""
        if self.latest is not None:
            return headline(self.latest, self.units)
        return "choosing a start" if self.engine is not None else ""

    def _watch(self) -> None:
        """Nobody should wonder whether anything happens while there are no records."""
        while not self._ended.wait(0.5):
            if self.shown:
                said = str(self).partition(" %, ")
                self.bar.n = min(self.fraction(), 1.0)
                self.bar.set_description_str(f"{self.name}: " if self.name else "", refresh=False)
                self.bar.set_postfix_str(said[2].partition(", ")[2], refresh=True)
            elif time.monotonic() - self.told >= self.every:
                self._print()

    def _print(self) -> None:
        self.told = time.monotonic()
        sys.stderr.write(f"{self}\n")
        sys.stderr.flush()


class _Cell(StringIO):
    """One line of output below the cell of a notebook, which each text replaces. It needs no widgets."""

    def write(self, text: str) -> int:
        from IPython.display import display

        if text.strip():
            shown = {"text/plain": text.strip("\r")}
            if not hasattr(self, "_line"):
                self._line = display(shown, raw=True, display_id=True)
            else:
                self._line.update(shown, raw=True)
        return len(text)
