"""How long a run will take, said before it begins; and its progress on stderr, while it goes on.

A terminal shows a progress bar, and a file a plain line every ten seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitgp.cli.run import Run
    from orbitgp.comparison.parallel import Job

_LONG = 20.0  # seconds, above which a person is told beforehand
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side
_EVERY = 10.0  # seconds between plain lines
_OPEN = "{n_fmt} steps, {elapsed}{postfix}"
_LEFT = ", {rate_noinv_fmt}, {remaining} left"
_STEPS = "{n_fmt}/{total_fmt} steps" + _LEFT + "{postfix}"
_MODELS = "{n_fmt} of {total_fmt} models done, {elapsed}{postfix}"


def print_estimate(run: Run, orbits: Sequence[Any], workers: int = 1) -> None:
    """Print how long exact training will take, if that is long, and what would take half of that or less."""
    from orbitgp.estimators.validation import usable_device
    from orbitgp.planning.plan import duration, exact_seconds

    settings, x, colour = run.config["settings"], run.data.x_train, run.data.read_options.colour
    device = usable_device(settings["device"])
    if settings["inference"] == "sparse" or settings["num_inducing"] or settings["batch_size"]:
        return
    limits = {name: settings[name] for name in ("num_samples", "max_steps", "max_seconds")}

    def total(rows: int, dim: int) -> float:
        fits = [exact_seconds(rows, dim, orbit, device, **limits) for orbit in orbits]
        return sum(float("nan") if seconds is None else seconds for seconds in fits) / workers  # sparse fits take another time

    rows, dim = len(x), int(x[0].size)
    seconds = total(rows, dim)
    if not seconds >= _LONG:
        return
    offers = {f"--max-data {rows // 2}": total(rows // 2, dim)} if rows // 2 >= _FEWEST else {}
    if colour and dim > _VALUES:
        offers[f"--resize {_SIDE}x{_SIDE}"] = total(rows, _SIDE**2 * (3 if colour == "RGB" else 1))
    quicker = [f"{option} would take {duration(less)}" for option, less in offers.items() if less <= seconds / 2]
    run.say("; ".join([f"this will take about {duration(seconds)} on a free machine", *quicker]))


class Progress:
    """How far one or several models are, and what they learn.

    Args:
        models: how many there are to train.
        steps: of each model; None where a model ends when it has converged.
        units: the unit of each learned quantity, by name.
        live: whether records arrive while a model trains. Steps are counted then, and the time left is estimated. Workers send
            their records when a model is done, so only the models that are done are counted, and the time goes on in between.
        quiet: print nothing.
    """

    def __init__(
        self, models: int, steps: int | None, units: Mapping[str, str] | None = None, live: bool = True, quiet: bool = False
    ) -> None:
        from tqdm import tqdm

        self.units, self.live, self.quiet = units, live, quiet
        self.terminal = sys.stderr.isatty()
        self.whole_model = (steps or 0) if live else 1
        known = steps is not None or not live
        bar = "|{bar:16}| " if self.terminal and known else ""
        self.done: dict[str, int] = defaultdict(int)
        self.told = time.monotonic()
        self.bar = tqdm(
            total=models * self.whole_model if known else None,
            bar_format="{desc}" + bar + ((_STEPS if known else _OPEN) if live else _MODELS),
            unit=" steps",
            file=sys.stderr if self.terminal else StringIO(),
            dynamic_ncols=True,
            leave=False,
            disable=quiet,
        )
        self._ended = threading.Event()

    def __enter__(self) -> Progress:
        if not self.quiet:
            if self.live:
                self.bar.set_postfix_str("choosing a start", refresh=False)  # until there is a first record
            threading.Thread(target=self._tell_the_time, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.bar.close()

    def _tell_the_time(self) -> None:
        """Nobody should wonder whether anything happens while there are no records."""
        while not self._ended.wait(1.0):
            silent = time.monotonic() - self.told >= _EVERY
            if not self.live and silent:
                self.bar.set_description_str("", refresh=False)  # the model that was done last
            if self.terminal:
                self.bar.refresh()
            elif silent:
                self._print_line()

    def _print_line(self) -> None:
        self.told = time.monotonic()
        print(self.bar, file=sys.stderr, flush=True)

    def begin_at(self, name: str, steps: int) -> None:
        """A model goes on after these steps, which say nothing about the time that is left."""
        if self.live and not self.quiet:
            self.done[name] = steps
            self.bar.initial += steps
            self.bar.n += steps
            self.bar.last_print_n += steps

    def record(self, name: str, record: Mapping[str, Any]) -> None:
        """Show a record of a model's history."""
        from orbitgp.training.records import headline

        if "rows" in record and not self.quiet:  # an exact run ends when it has converged, long before the limit of its steps
            self.bar.bar_format = self.bar.bar_format.replace(_LEFT, " at most, {elapsed}")
        self._show(name, record["step"], headline(record, self.units))

    def watch(self, job: Job, record: Mapping[str, Any] | None) -> None:
        """Show a record of a job, or that it is done; a function to give to :func:`orbitgp.compare`."""
        name = job.name + (f" ({job.purpose}, seed {job.seed})" if job.purpose else f", seed {job.seed}")
        if record is None:
            self._show(name, self.whole_model, "")
        elif self.live:
            self.record(name, record)

    def _show(self, name: str, done: int, text: str) -> None:
        self.bar.set_description(name, refresh=False)
        self.bar.set_postfix_str(text, refresh=False)
        if name not in self.done and self.bar.total is not None:  # more models than were planned, where they decide
            self.bar.total = max(self.bar.total, (len(self.done) + 1) * self.whole_model)
        before = self.done[name]
        self.bar.update(max(done - before, 0))
        self.done[name] = max(done, before)
        if self.quiet or self.terminal:
            return
        last = done > before and self.bar.total is not None and self.bar.n >= self.bar.total
        if time.monotonic() - self.told >= _EVERY or last or not self.live:
            self._print_line()
