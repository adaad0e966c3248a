"""How fast stochastic steps learn, and when they have learned enough.

Rates are in units of how far inputs spread, and targets. They warm up, hold, and fall to zero. Those of the inducing points
fall from the beginning.

A run has converged when what the bound still gains is small, and known to be. The records of a run hold means of the bound. The
last half of them is cut into two windows. The difference of their means is what the bound has gained from one to the next, and
their scatter says how well that is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orbitgp.inference.local_parameters import LocalSource
from orbitgp.inference.rows import spread
from orbitgp.likelihoods import Classification
from orbitgp.orbits import Orbit

Groups = list[dict[str, Any]]  # as an optimiser takes them: parameters, their first and present rates, and whether these cool

# Rates of Adam, that of the inducing points in units of the spread of the inputs.
_ORBIT_RATE, _INDUCING_RATE, _NETWORK_RATE = 0.05, 0.1, 0.01
_WARMUP = 20  # steps over which rates grow to their full size

_FEWEST = 40  # records before anything can be said about convergence
_NATS, _SHARE = 2.0, 0.003  # what a run twice as long may gain: nats, or this share of all that was gained


def parameter_groups(local: LocalSource, rate: float) -> Groups:
    """What is learned, by its rate; ``rate`` is that of kernel, likelihood and prior mean."""
    model, likelihood, x, y = local.setting
    of_inputs = spread(x)
    of_targets = 1.0 if isinstance(likelihood, Classification) else spread(y)  # log odds have no units
    scaled = [part for part in model.orbit.modules() if isinstance(part, Orbit) and part.in_units_of_inputs]
    units = {id(p): of_inputs for part in scaled for p in part.parameters()}
    rates = {id(p): rate * of_targets for p in model.prior_mean.parameters()}
    rates |= {id(p): _ORBIT_RATE * units.get(id(p), 1.0) for p in model.orbit.parameters()}
    rates |= {id(p): _NETWORK_RATE for p in local.parameters()}
    rates[id(model.inducing)] = _INDUCING_RATE * of_inputs
    learned = [p for part in (model, likelihood, local) for p in part.parameters() if p.requires_grad]
    # Where nothing is learned, q(u) is still found: the optimiser then holds what it never moves.
    return [
        {"params": [p], "lr": first, "first": first, "cools": p is model.inducing}
        for p, first in ((p, rates.get(id(p), rate)) for p in learned or [model.inducing])
    ]


def set_rates(groups: Groups, fraction: float, step: int) -> None:
    """Set the rates of this step, when such a fraction of the run is over."""
    for group in groups:
        factor = schedule(fraction, hold=0.0 if group["cools"] else 0.5)
        group["lr"] = group["first"] * factor * min(1.0, (step + 1) / _WARMUP)


def schedule(fraction: float, hold: float = 0.5) -> float:
    """Level, then a cosine down to zero over the last part of the budget."""
    down = 0.0 if fraction <= hold else (fraction - hold) / (1 - hold)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, down)))


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
