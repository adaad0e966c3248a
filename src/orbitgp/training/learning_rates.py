"""Learning rates of stochastic steps: what is learned, how fast, and how that changes over a run.

Rates are in units of how far inputs spread, and targets. They warm up, hold, and fall to zero. Those of the inducing points
fall from the beginning.
"""

from __future__ import annotations

import math
from typing import Any

from torch.nn import Parameter

from orbitgp.inference.inducing_points import points_are_best
from orbitgp.inference.local_parameters import LocalSource, Setting
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import spread
from orbitgp.likelihoods import Classification
from orbitgp.orbits import Orbit
from orbitgp.planning.options import TrainerSettings

Groups = list[dict[str, Any]]  # as an optimiser takes them: parameters and their rate

# Rates of Adam, that of the inducing points in units of the spread of the inputs.
_ORBIT_RATE = 0.05
_INDUCING_RATE = 0.1
_NETWORK_RATE = 0.01
_WARMUP, _ORBIT_WARMUP = 10, 40  # steps over which rates grow to their full size


class LearningRates:
    """The rates of an optimiser's groups over a run. ``first`` are those that they were made with."""

    def __init__(self, groups: Groups, model: InvariantGP) -> None:
        self.groups = groups
        self.first = [group["lr"] for group in groups]
        # The first values of kernel and noise are guesses. The orbit warms up longer, so that these settle first.
        orbit = {id(p) for p in model.orbit.parameters()}
        self.of_orbit = [id(group["params"][0]) in orbit for group in groups]
        self.cools = [group["params"][0] is model.inducing for group in groups]
        self.warmups = [_ORBIT_WARMUP if mine else _WARMUP for mine in self.of_orbit]

    def set(self, fraction: float, step: int, keeps_orbit: bool) -> None:
        """Those of this step, when such a fraction of the run is over."""
        factor, cooling = schedule(fraction), schedule(fraction, hold=0.0)
        groups = zip(self.groups, self.first, self.warmups, self.cools, self.of_orbit, strict=True)
        for group, rate, warmup, cools, of_orbit in groups:
            group["lr"] = rate * (cooling if cools else factor) * min(1.0, (step + 1) / warmup)
            if of_orbit and keeps_orbit:
                group["lr"] = 0.0


def parameter_groups(setting: Setting, options: TrainerSettings, local: LocalSource, rounds: int) -> Groups:
    """What is learned, by its rate. ``rounds`` of updates of q(u) come before each step."""
    model, likelihood = setting.model, setting.likelihood
    of_inputs = spread(setting.x)
    of_targets = 1.0 if isinstance(likelihood, Classification) else spread(setting.y)  # log odds have no units
    orbit, mean = list(model.orbit.parameters()), list(model.prior_mean.parameters())
    known = {id(p) for p in (*orbit, *mean, model.inducing)}
    rest = [p for p in (*model.parameters(), *likelihood.parameters()) if id(p) not in known]
    rate = options.learning_rate or (0.1 if rounds > 1 else 0.03)
    groups = [(rest, rate), (mean, rate * of_targets)]
    groups += [(parameters, _ORBIT_RATE * unit) for parameters, unit in _by_unit(model.orbit, of_inputs)]
    best = points_are_best(model.orbit, len(model.inducing), len(setting.x))
    groups += [] if best else [([model.inducing], _INDUCING_RATE * of_inputs)]
    groups.append((list(local.parameters()), _NETWORK_RATE))
    learned = [([p for p in parameters if p.requires_grad], rate) for parameters, rate in groups]
    # Where nothing is learned, q(u) is still found: the optimiser then holds what it never moves.
    held = [{"params": [model.inducing], "lr": 0.0}]
    return [{"params": parameters, "lr": rate} for parameters, rate in learned if parameters] or held


def schedule(fraction: float, hold: float = 0.5) -> float:
    """Level, then a cosine down to zero over the last part of the budget."""
    down = 0.0 if fraction <= hold else (fraction - hold) / (1 - hold)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, down)))


def _by_unit(orbit: Orbit, unit: float) -> list[tuple[list[Parameter], float]]:
    """The parameters of an orbit that are numbers, and those that have the unit of the inputs."""
    parts = [part for part in orbit.modules() if isinstance(part, Orbit) and part.in_units_of_inputs]
    scaled = {id(p) for part in parts for p in part.parameters()}
    parameters = list(orbit.parameters())
    return [([p for p in parameters if id(p) not in scaled], 1.0), ([p for p in parameters if id(p) in scaled], unit)]
