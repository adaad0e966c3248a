"""Progress on stderr: a progress bar in a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from orbitgp.comparison.parallel import Job

_EVERY = 10.0  # seconds between plain lines
_BAR = "{desc} |{bar:16}| {n_fmt}/{total_fmt} steps, {rate_noinv_fmt}, {remaining} left{postfix}"


class Progress:
    """The steps that one or several models have done, with the bound, what is learned, the rate and the time left.

    Args:
        total: steps of all models together.
        units: the unit of each learned quantity, by name.
        quiet: print nothing.
    """

    def __init__(
        self, total: int, units: Mapping[str, str] | None = None, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self.total, self.units, self.quiet = total, dict(units or {}), quiet
        self.stream = stream or sys.stderr
        self.done: dict[Any, int] = {}
        self.finished = 0
        self.started = self.told = time.monotonic()
        self.bar: Any = None
        if not quiet and self.stream.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, bar_format=_BAR, file=self.stream, dynamic_ncols=True, unit="step", leave=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def record(self, name: str, record: Mapping[str, Any], key: Any = None) -> None:
        """Show a record of a model's history."""
        self._at(key or name, int(record["step"]))
        self._tell(name, f"bound {record['bound']:,.0f}{self._learned(record['orbit'])}")

    def watch(self, steps: int) -> Any:
        """A function to give to :func:`orbitgp.compare` when each model takes ``steps`` steps."""

        def watch(job: Job, record: Mapping[str, Any] | None) -> None:
            key = (job.name, job.seed, job.purpose)
            name = job.name + (f" ({job.purpose})" if job.purpose else f", seed {job.seed}")
            if record is not None:
                self.record(name, record, key)
                return
            self.finished += 1
            self._at(key, steps)
            self._tell(name, f"done, {self.finished} models so far")

        return watch

    def _at(self, key: Any, step: int) -> None:
        before = self.done.get(key, 0)
        self.done[key] = max(step, before)
        if self.bar is not None:
            self.bar.update(max(step - before, 0))

    def _tell(self, name: str, text: str) -> None:
        if self.bar is not None:
            self.bar.set_description_str(name, refresh=False)
            self.bar.set_postfix_str(text)
            return
        now, done = time.monotonic(), sum(self.done.values())
        if self.quiet or (now - self.told < _EVERY and done < self.total):
            return
        self.told = now
        rate = done / max(now - self.started, 1e-9)
        left = (self.total - done) / max(rate, 1e-9)
        words = f"{name}: {done}/{self.total} steps, {rate:.1f} steps/s, {_duration(left)} left, {text}"
        print(words, file=self.stream, flush=True)

    def _learned(self, orbit: Mapping[str, Any]) -> str:
        from orbitgp.orbits.description import Quantity

        learned = {name: Quantity.of(value, self.units.get(name, "")) for name, value in orbit.items()}
        return "".join(f", {name} {quantity}" for name, quantity in learned.items() if not name.endswith("elements"))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
