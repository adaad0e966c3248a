"""What ``fit`` takes besides data: who watches the run, where its checkpoints go, and what Ctrl-C does to it.

The first Ctrl-C ends the run after the step that it is in: the checkpoint is written, q(u) refitted, the evidence measured, and
the model so far is kept, with a warning that says how to go on. A second one stops at once; then the estimator is what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from orbitgp.estimators.interrupt import first_interrupt
from orbitgp.training.callbacks import Callback, log
from orbitgp.training.checkpoint import Checkpoint
from orbitgp.training.diagnostics import Record
from orbitgp.training.trainer import Trainer

logger = logging.getLogger("orbitgp")

StrPath = str | PathLike[str]


class Run:
    """One call of ``fit``: its arguments checked, before any work is done."""

    def __init__(self, callback: Any, checkpoint: Any, every: Any, resume: Any) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be a function of one record, got {callback!r}.")
        if not isinstance(every, Real) or isinstance(every, bool):
            raise TypeError(f"checkpoint_every must be a number of seconds, got {every!r}.")
        self.callback: Callback | None = callback
        self.warning: str | None = None
        self.interrupted = False
        self.checkpoint = _open(checkpoint, float(every), resume)

    def seeds(self, drawn: list[int], random_state: Any) -> list[int]:
        """The seeds of this run: where the random state is no number, those with which the run that is resumed began."""
        saved = self.checkpoint.saved if self.checkpoint is not None else None
        return drawn if saved is None or isinstance(random_state, Integral) else saved.seeds

    @contextmanager
    def around(self, trainer: Trainer, seeds: list[int], shift: float) -> Iterator[None]:
        """All that happens while this trainer runs. ``shift`` takes bounds to the units of y."""

        def tell(record: Record) -> None:
            told = {**record, "bound": record["bound"] - shift}
            log(told)
            if self.callback is not None:
                self.callback(told)

        trainer.callback, trainer.after_step = tell, self._after_step
        if self.checkpoint is not None:
            self.checkpoint.restore(trainer, seeds)
        begin = getattr(self.callback, "begin", None)
        if begin is not None:
            begin(trainer)
        with first_interrupt(trainer.stop):
            yield
        self.interrupted = trainer.stopped and trainer.fraction() < 1.0
        if trainer.stopped:
            self.warning = self._say(trainer)

    def _after_step(self, trainer: Trainer) -> None:
        if self.checkpoint is not None:
            self.checkpoint.after_step(trainer)
        if trainer.stopped:
            logger.warning("stopped after %d steps; finishing the model. Ctrl-C again gives it up.", trainer.steps)

    def _say(self, trainer: Trainer) -> str:
        if not self.interrupted:
            return "Ctrl-C came when training was over: the model is complete."
        kept = f"fit was stopped after {trainer.steps} of {trainer.options.max_steps} steps; the model so far is kept."
        if self.checkpoint is None:
            return f"{kept} To be able to go on from there, give fit a checkpoint=path."
        if self.checkpoint.written < 0:
            return f"{kept} There is no checkpoint yet: to go on is to start over."
        again = f"checkpoint={str(self.checkpoint.path)!r}, resume=True"
        return f"{kept} To go on, call fit with the same data and settings and {again}."


def _open(checkpoint: StrPath | None, every: float, resume: bool | StrPath) -> Checkpoint | None:
    if not isinstance(resume, bool):
        # A path to go on from, which must be there, and where further checkpoints go unless another place is named.
        path = Path(resume)
        if not path.exists():
            raise FileNotFoundError(f"there is no checkpoint {path} to go on from.")
        if checkpoint is not None and Path(checkpoint) != path:
            raise ValueError("resume and checkpoint name two files: a run goes on in the file that it resumes from.")
        return Checkpoint(path, every, resume=True)
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True goes on from a checkpoint: pass checkpoint=path, or resume=path.")
        return None
    return Checkpoint(Path(checkpoint), every, resume)
