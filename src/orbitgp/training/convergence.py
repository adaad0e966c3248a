"""When a stochastic run has converged: what the bound still gains is small, and known to be.

The records of a run hold means of the bound. The last half of them is cut into two windows. The difference of their means is
what the bound has gained from one to the next, and their scatter says how well that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

FEWEST = 40  # records before anything can be said
NATS, SHARE = 2.0, 0.003  # what a run twice as long may gain: nats, or this share of all that was gained
_ERRORS = 2.0  # standard errors that the gain may be off by


class Rise(NamedTuple):
    """What the bound gained from the third quarter of the records to the last, with its standard error."""

    gain: float
    stderr: float
    total: float  # since the first records


def rise(bounds: Sequence[float]) -> Rise | None:
    """How much the bound is still rising; None where too few records say."""
    if len(bounds) < FEWEST:
        return None
    size = len(bounds) // 4
    before, last = np.asarray(bounds[-2 * size : -size]), np.asarray(bounds[-size:])
    # Differences of neighbours show the noise without the trend.
    noise = np.concatenate([np.diff(before), np.diff(last)]).std() / np.sqrt(2)
    return Rise(float(last.mean() - before.mean()), float(noise * np.sqrt(2 / size)), float(last.mean() - bounds[0]))


def is_level(bounds: Sequence[float]) -> bool:
    """Whether little is left to gain, whatever the noise. A run twice as long has four more quarters."""
    found = rise(bounds)
    return found is not None and 4 * found.gain + _ERRORS * found.stderr < max(NATS, SHARE * found.total)


def in_words(steps: int, converged: bool, stopped: bool, found: Rise | None) -> str:
    """What happened, for people."""
    if stopped:
        return f"The run was stopped after {steps:,} steps."
    if converged:
        return f"The bound had stopped rising, and the run ended after {steps:,} steps."
    end = f"The run met its limit after {steps:,} steps"
    if found is None:
        return f"{end}, too few to say whether the bound was still rising: raise max_steps or max_seconds."
    if found.gain > _ERRORS * found.stderr:
        return f"{end} while the bound was rising: it gained {found.gain:,.0f} nats in their last quarter. Raise the limit."
    return f"{end}. In their last quarter the bound gained no more than its noise, {_ERRORS * found.stderr:,.1f} nats."
