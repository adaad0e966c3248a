"""How fast stochastic steps learn, and when they have learned enough.

Rates are in units of how far inputs spread, and targets. They hold, and fall to zero.

A run has converged when what the bound still gains is small, and known to be. The records of a run hold means of the bound. The
last half of them is cut into two windows. The difference of their means is what the bound has gained from one to the next, and
their scatter says how well that is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orbitgp.inference.local_parameters import LocalParameters
from orbitgp.inference.rows import spread
from orbitgp.likelihoods import Classification
from orbitgp.orbits import Orbit

Groups = list[dict[str, Any]]  # as an optimiser takes them: parameters, their first and present rates

_INDUCING_RATE = 0.1  # of Adam, in units of the spread of the inputs

_FEWEST = 40  # records before anything can be said about convergence
_NATS, _SHARE = 2.0, 0.003  # what a run twice as long may gain: nats, or this share of all that was gained


def parameter_groups(local: LocalParameters, rate: float) -> Groups:
    """What is learned, by its rate; inducing points have their own, and all else has ``rate`` in its units."""
    model, likelihood, x, y = local.setting
    of_inputs = spread(x)
    of_targets = 1.0 if isinstance(likelihood, Classification) else spread(y)  # log odds have no units
    scaled = [part for part in model.orbit.modules() if isinstance(part, Orbit) and part.in_units_of_inputs]
    rates = {id(p): rate * of_inputs for part in scaled for p in part.parameters()}
    rates |= {id(p): rate * of_targets for p in model.prior_mean.parameters()}
    rates[id(model.inducing)] = _INDUCING_RATE * of_inputs
    learned = [p for part in (model, likelihood, local) for p in part.parameters() if p.requires_grad]
    # Where nothing is learned, q(u) is still found: the optimiser then holds what it never moves.
    each = ((p, rates.get(id(p), rate)) for p in learned or [model.inducing])
    return [{"params": [p], "lr": first, "first": first} for p, first in each]


def schedule(fraction: float) -> float:
    """The factor of the rates: level, then a cosine down to zero over the last half of the budget."""
    down = min(1.0, max(0.0, 2 * fraction - 1))
    return 0.5 * (1 + math.cos(math.pi * down))


class Rise(NamedTuple):
    """What the bound gained from the third quarter of the records to the last, with its standard error."""

    gain: float
    stderr: float
    total: float  # since the first records


def rise(bounds: Sequence[float]) -> Rise | None:
    """How much the bound is still rising; None where too few records say."""
    if len(bounds) < _FEWEST:
        return None
    size = len(bounds) // 4
    before, last = np.asarray(bounds[-2 * size : -size]), np.asarray(bounds[-size:])
    # Differences of neighbours show the noise without the trend.
    noise = np.concatenate([np.diff(before), np.diff(last)]).std() / np.sqrt(2)
    return Rise(float(last.mean() - before.mean()), float(noise * np.sqrt(2 / size)), float(last.mean() - bounds[0]))


def is_level(bounds: Sequence[float]) -> bool:
    """Whether little is left to gain, whatever the noise. A run twice as long has four more quarters."""
    found = rise(bounds)
    return found is not None and 4 * found.gain + 2 * found.stderr < max(_NATS, _SHARE * found.total)


def in_words(steps: int, converged: bool, stopped: bool, found: Rise | None) -> str:
    """What happened, for people."""
    if stopped:
        return f"The run was stopped after {steps:,} steps."
    if converged:
        return f"The bound had stopped rising, and the run ended after {steps:,} steps."
    end = f"The run met its limit after {steps:,} steps"
    if found is None:
        return f"{end}, too few to say whether the bound was still rising: raise max_steps or max_seconds."
    if found.gain > 2 * found.stderr:
        return f"{end} while the bound was rising: it gained {found.gain:,.0f} nats in their last quarter. Raise the limit."
    return f"{end}. In their last quarter the bound gained no more than its noise, {2 * found.stderr:,.1f} nats."
