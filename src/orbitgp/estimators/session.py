"""What ``fit`` takes besides data: who watches the run, where its checkpoints go, and what Ctrl-C does to it.

The first Ctrl-C ends the run within seconds: the checkpoint is written, and the model so far is kept, with a warning
that says how to go on. Where the posterior of all data takes longer, it is that of some of them, or with fewer draws. A
second one stops at once and leaves the estimator as it was. So does the first where the callback says that it has no
use for a model that is not complete (``only_complete = True``).
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from orbitgp.inference import processes
from orbitgp.training.checkpoint import Checkpoint
from orbitgp.training.maximise import Stopped
from orbitgp.training.progress import Progress
from orbitgp.training.records import Callback, Record, headline
from orbitgp.training.run import Engine

logger = logging.getLogger("orbitgp")

StrPath = str | PathLike[str]


class Session:
    """One call of ``fit``: its arguments are checked before any work is done."""

    def __init__(
        self,
        callback: Any = None,
        checkpoint: Any = None,
        checkpoint_every: Any = 60.0,
        resume: Any = False,
        sample_weight: Any = None,
    ) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of one record, got {callback!r}.")
        if not isinstance(checkpoint_every, Real) or isinstance(checkpoint_every, bool):
            raise TypeError(f"checkpoint_every must be a number of seconds, got {checkpoint_every!r}.")
        self.begun: float = getattr(callback, "begun", None) or time.perf_counter()
        self.callback: Callback | None = callback
        self.warning: str | None = None
        self.interrupted = self.only_plans = False
        self.fits = 1
        self.checkpoint = _checkpoint(checkpoint, float(checkpoint_every), resume)
        self.sample_weight = sample_weight

    def seeds(self, drawn: list[int], random_state: Any) -> list[int]:
        """The seeds of this run: those drawn, or those of the resumed run where ``random_state`` is no number."""
        saved = self.checkpoint.saved if self.checkpoint is not None else None
        return drawn if saved is None or isinstance(random_state, Integral) else saved.seeds

    @contextmanager
    def around(self, engine: Engine, seeds: list[int], shift: float, verbose: int | None) -> Iterator[None]:
        """Log, bar, checkpoints, callback and Ctrl-C while the engine runs. ``shift`` takes bounds to units of y."""
        bar = Progress([engine.planned], lines=bool(verbose), show=verbose if verbose is None else bool(verbose))

        def report(record: Record) -> None:
            in_units_of_y = {**record, "bound": record["bound"] - shift}
            if logger.isEnabledFor(logging.INFO):
                done = 100 * engine.progress(), record["step"], record["seconds"], headline(in_units_of_y)
                logger.info("%.0f %%, step %d, %.1f s: %s", *done)
            bar.record(in_units_of_y)
            if self.callback is not None:
                self.callback(in_units_of_y)

        engine.callback, engine.after_step = report, self._after_step
        if self.checkpoint is not None:
            self.checkpoint.restore(engine, seeds)
        rows = len(engine.x)
        begin = getattr(self.callback, "begin", None)
        if begin is not None:
            begin(engine)
        bar.begin(engine)
        with bar, nullcontext() if getattr(self.callback, "only_complete", False) else _first_interrupt(engine):
            yield
        self.interrupted = engine.stopped
        if engine.stopped:
            some = f" It knows {len(engine.x):,} of {rows:,} rows." if len(engine.x) < rows else ""
            self.warning = self._how_to_go_on(engine, some)

    def _after_step(self, engine: Engine) -> None:
        if self.checkpoint is not None:
            self.checkpoint.after_step(engine)
        if engine.stopped and not self.interrupted:  # a stage that is cut short is followed by others
            self.interrupted = True
            logger.warning("stopped after %d steps; finishing the model. Press Ctrl-C again to give up.", engine.steps)

    def _how_to_go_on(self, engine: Engine, some: str) -> str:
        of_all = "" if engine.max_steps is None else f" of {engine.max_steps}"
        kept = f"fit was stopped after {engine.steps}{of_all} steps; the model so far is kept.{some}"
        if self.checkpoint is None:
            return f"{kept} To be able to go on next time, give fit a checkpoint=path."
        if self.checkpoint.written < 0:
            return f"{kept} There is no checkpoint yet, so another fit starts over."
        again = f"checkpoint={str(self.checkpoint.path)!r}, resume=True"
        return f"{kept} To go on, call fit with the same data and settings and {again}."


@contextmanager
def _first_interrupt(engine: Engine) -> Iterator[None]:
    """Within this block, the first Ctrl-C stops the engine, and the next one raises KeyboardInterrupt as usual.

    Outside of the main thread, and in programs that handle Ctrl-C themselves, this does nothing.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def handle(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        engine.stop()
        if engine.interruptible and processes.count() == 1:  # several processes stop at the same step
            raise Stopped

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _checkpoint(checkpoint: StrPath | None, every: float, resume: bool | StrPath) -> Checkpoint | None:
    if isinstance(resume, bool):
        if resume and checkpoint is None:
            raise ValueError("resume=True needs a checkpoint to go on from: pass checkpoint=path, or resume=path.")
        return None if checkpoint is None else Checkpoint(Path(checkpoint), every, resume)
    path = Path(resume)
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path} to go on from.")
    if checkpoint is not None and Path(checkpoint) != path:
        raise ValueError(
            "resume and checkpoint name two files, but a run writes to the file that it resumes from: pass one of them."
        )
    return Checkpoint(path, every, resume=True)
