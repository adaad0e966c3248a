"""Watching a fit: a callback is a plain function of a record, ``fit(X, y, callback=print)``.

A record is a dictionary: ``step``, ``seconds``, ``bound`` (in the units of y), ``orbit`` (what is learned, in physical units)
and the hyperparameters by name. Every record also goes to Python's logging, under the name ``orbitgp``, at level INFO.

A callback that looks at the model itself while it learns also has a method ``begin``. It is called with the
:class:`~orbitgp.training.trainer.Trainer` before the first step, and must not change it. The time of callbacks does not
count as training.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from os import PathLike
from typing import Any

from orbitgp.training.diagnostics import Record, headline

Callback = Callable[[Record], None]

logger = logging.getLogger("orbitgp")


def log(record: Record) -> None:
    """Write the record to the log, in one line."""
    logger.info("step %d, %.1f s: %s", record["step"], record["seconds"], headline(record))


def tensorboard(log_dir: str | PathLike[str]) -> Callback:
    """A callback that writes every number of a record to TensorBoard event files in this folder."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("the TensorBoard callback needs the package tensorboard: pip install tensorboard.") from error
    writer: Any = None

    def write(record: Record) -> None:
        nonlocal writer
        if writer is None:
            # A run that was killed may have written records beyond its last checkpoint. Hide them when it continues from there.
            writer = SummaryWriter(str(log_dir), purge_step=record["step"])
        for name, value in numbers(record).items():
            writer.add_scalar(name, value, record["step"])
        writer.flush()

    return write


def numbers(record: Record) -> dict[str, float]:
    """The numbers of a record by name, ranges as two: ``orbit/angle/low`` and ``orbit/angle/high``."""
    flat: dict[str, float] = {}
    for name, value in record.items():
        if name == "step":
            continue
        if isinstance(value, dict):
            flat |= {f"{name}/{inner}": number for inner, number in numbers(value).items()}
        elif isinstance(value, tuple):
            flat |= {f"{name}/low": value[0], f"{name}/high": value[1]}
        else:
            flat[name] = value
    return flat
