"""How well the data determine what was learned: the curvature of the exact evidence at its top.

Close to its top the evidence is a Gaussian in all learned parameters together. Its precision is minus the second derivative,
here by differences of the exact gradient. Draws from that Gaussian are orbits that the data support about as well as the best
one. The middle 95 % of what these orbits describe, in degrees and pixels, is called plausible.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float

from orbitgp.orbits.description import Quantity
from orbitgp.training.learned_vector import Vector
from orbitgp.training.quasi_newton import QuasiNewton

Plausible = dict[str, tuple[Quantity, Quantity] | None]  # the narrowest and the widest of each; None: no sharp peak

MOST_PARAMETERS = 24
_EVALUATIONS = 3  # for each parameter: two with a gradient, and two to four without
_ROWS = 400  # data that the curvature is measured by; that of all data is in proportion
_DRAWS = 400
_LEVELS = (0.025, 0.975)
_FLAT = 10.0  # the standard deviation of a direction in which the evidence does not fall: as far as any parameter goes
_WIDEST = 1.0  # a standard deviation of a parameter, above which the top is too flat to be taken for a Gaussian,
_WIDEST_SHARE = 0.25  # unless it is no more than this share of the parameter: an orbit may have parameters in any unit
_SAMPLES = 16  # draws of an infinite orbit are enough for a curvature
_NUDGE = 0.1  # of a parameter, to see which quantities it moves
_STEP, _LONG_STEP, _LEAST_STEP = 0.3, 1.0, 0.005  # of a parameter; the long one where the evidence does not fall on the first
_SEEN = 0.1  # nats by which it must fall


def plausible_ranges(climber: QuasiNewton) -> Plausible:
    """What else the orbit could be, by the name of each learned quantity.

    There is nothing where it was not measured: a limit leaves no time for that, or there are too many parameters. There is
    None of a quantity over which the evidence has no sharp peak, so that it is no Gaussian.
    """
    learned = {id(p) for p in climber.learned.parameters}
    if not climber.converged or not any(id(p) in learned for p in climber.model.orbit.parameters()):
        return {}
    samples, best = climber.model.num_samples, climber.learned.get()
    fewer = None if samples is None else min(samples, _SAMPLES)
    rows = min(_ROWS, len(climber.x))
    if len(best) > MOST_PARAMETERS or not climber.limit.allows(_EVALUATIONS * len(best), rows, fewer, climber.seconds):
        return {}
    bias = climber.model.prior_mean.bias.detach().clone()
    try:
        climber.model.num_samples = fewer
        with climber.objective.subset(rows):
            share = len(climber.model.x) / len(climber.x)
            hessian = precision(climber, _steps(climber)) / share
        return _ranges(climber, best, hessian)
    except FloatingPointError:
        return {}
    finally:
        climber.learned.set(best)
        climber.model.num_samples = samples
        with torch.no_grad():
            climber.model.prior_mean.bias.copy_(bias)


def _steps(climber: QuasiNewton) -> Float[np.ndarray, " parameters"]:
    """A standard deviation of each parameter with the others fixed, or less: steps over which the evidence is seen to fall.

    Images have kinks where they are interpolated, so steps are as long as the scale that matters, and not shorter. That scale
    need not be known well, so values alone will do. A reach is not taken beyond zero.
    """
    best = climber.learned.get()

    def value(vector: Vector) -> float:
        climber.learned.set(vector)
        return climber.objective.value()

    here = value(best)
    longest = np.where(climber.learned.is_reach, np.abs(best), _LONG_STEP).clip(_STEP, _LONG_STEP)
    steps = np.zeros_like(best)
    for axis, long in zip(np.eye(len(best)), longest, strict=True):
        for step in (_STEP, long):
            fall = here - 0.5 * (value(best - step * axis) + value(best + step * axis))
            if fall > _SEEN:
                break
        else:
            step = _STEP if np.isnan(fall) else step
        steps += axis * step / np.sqrt(np.fmax(1.0, 2 * fall))
    return steps.clip(_LEAST_STEP)


def precision(climber: QuasiNewton, steps: Float[np.ndarray, " parameters"]) -> Float[np.ndarray, "parameters parameters"]:
    """Minus the second derivative of the log evidence (and priors) in all learned parameters, by steps of the gradient.

    Where a step leads to where the evidence has no gradient, the data say nothing: zero.
    """
    best = climber.learned.get()
    columns = [
        (climber.objective.gradient_at(best - step) - climber.objective.gradient_at(best + step)) / (2 * step.max())
        for step in np.diag(steps)
    ]
    return np.nan_to_num(0.5 * (np.stack(columns) + np.stack(columns).T), nan=0.0, posinf=0.0, neginf=0.0)


def _ranges(
    climber: QuasiNewton, best: Float[np.ndarray, " parameters"], hessian: Float[np.ndarray, "parameters parameters"]
) -> Plausible:
    """What orbits describe whose parameters are drawn around the best.

    In some directions the evidence may not fall at all. That says nothing about parameters that have no part in these.
    """
    values, vectors = np.linalg.eigh(hessian)
    spread = vectors * np.minimum(1 / np.sqrt(values.clip(1e-12)), _FLAT)
    widest = np.maximum(_WIDEST, _WIDEST_SHARE * np.abs(best))
    flat = (np.linalg.norm(spread, axis=1) > widest) & _of_orbit(climber)
    moved = np.where(flat, 0.0, np.random.default_rng(0).standard_normal((_DRAWS, len(best))) @ spread.T)
    known = _descriptions(climber, [best, *(best + moved)])
    unknown = _descriptions(climber, [best, best + _NUDGE * flat])
    return {name: _between(quantities) for name, quantities in known.items()} | dict.fromkeys(unknown)


def _descriptions(climber: QuasiNewton, vectors: list[Float[np.ndarray, " parameters"]]) -> dict[str, list[Quantity]]:
    """What the orbit describes with each of these parameters, of the quantities that are not always the same."""
    found: dict[str, list[Quantity]] = {}
    for vector in vectors:
        climber.learned.set(vector)
        for name, quantity in climber.model.orbit.describe().quantities.items():
            found.setdefault(name, []).append(quantity)
    return {name: quantities for name, quantities in found.items() if len({str(q.value) for q in quantities}) > 1}


def _of_orbit(climber: QuasiNewton) -> Bool[np.ndarray, " parameters"]:
    """Which of the learned parameters are the orbit's."""
    orbit = {id(p) for p in climber.model.orbit.parameters()}
    return np.concatenate([np.full(p.numel(), id(p) in orbit) for p in climber.learned.parameters])


def _between(values: list[Quantity]) -> tuple[Quantity, Quantity]:
    """The middle 95 % of a number; of a range, both its ends at their nearest and at their farthest. The best comes first, and
    is plausible: where a range could vanish, the others lie on one side of it."""
    unit, numbers = values[0].unit, np.array([quantity.value for quantity in values])
    low, high = np.quantile(numbers, _LEVELS, axis=0)
    low, high = np.minimum(low, numbers[0]), np.maximum(high, numbers[0])
    if isinstance(values[0].value, float):
        return Quantity(float(low), unit), Quantity(float(high), unit)
    return Quantity((float(high[0]), float(low[1])), unit), Quantity((float(low[0]), float(high[1])), unit)
