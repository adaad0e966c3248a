"""Has a run converged? What it would still gain, from the shape of its own history.

The learning rates fall to zero at the end of a run, so that every bound is flat there, converged or not. Steps are therefore
counted in *work*, the sum of the factors by which the rates were multiplied: the first half of the steps does 1/2 of work, the
second half 1/4. Between three points with equal work between them, a bound that approaches its limit exponentially gains
g1, then g2 = r g1, and what is left is r g2 + r^2 g2 + ... = g2^2 / (g1 - g2).

Real runs have slower parts as well, so take it for what it is: good to a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from orbitgp.training.diagnostics import Record

# Fractions of the steps after which 1/4, 1/2 and 3/4 of work is done; each value is a mean over records nearby.
_WINDOWS = ((0.2, 0.3), (0.45, 0.55), (0.9, 1.0))
_FEW = 10  # records: with fewer there is no shape to see


def remaining_gain(history: Sequence[Record]) -> float:
    """The nats that the bound would still gain if training went on; infinite where nothing says that it would ever end."""
    if len(history) < _FEW:
        return inf
    steps = np.array([record["step"] for record in history], dtype=float)
    bounds = np.array([record["bound"] for record in history], dtype=float)
    fraction = steps / steps[-1]
    values = [bounds[(fraction >= low) & (fraction <= high)] for low, high in _WINDOWS]
    # A run that screened its starts tells of itself from there on only.
    first = values[0].mean() if len(values[0]) else bounds[0]
    middle, last = (v.mean() if len(v) else inf for v in values[1:])
    g1, g2 = middle - first, last - middle
    if g2 <= 0:
        return 0.0
    return inf if g2 >= g1 else float(g2**2 / (g1 - g2))
