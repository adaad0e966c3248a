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

from orbitgp.training.diagnostics import Record, headline

Callback = Callable[[Record], None]

logger = logging.getLogger("orbitgp")


def log(record: Record) -> None:
    """Write the record to the log, in one line."""
    logger.info("step %d, %.1f s: %s", record["step"], record["seconds"], headline(record))
