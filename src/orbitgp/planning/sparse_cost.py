"""How long a sparse run may take: what its steps cost, and how many of them it may take where the user sets no limit.

Seconds are those of a nominal speed of the device (:mod:`orbitgp.planning.cost`), so the same data get the same limit on every
day and on every machine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource, first
from orbitgp.likelihoods import Likelihood
from orbitgp.planning.cost import Cost, Workload, affordable, covariances_and_turns
from orbitgp.planning.device_speed import nominal_seconds
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.time_limit import TimeLeft

PATIENCE = 4.0  # times an exact fit: what a run may take where nothing quicker is possible
SECONDS = PATIENCE * TrainerSettings.exact_seconds  # of stochastic steps, by default
EVALUATIONS = 100  # of a bound, that a climb takes, about
FEW_EVALUATIONS = 20  # where there is no time for more: more rows and more inducing points gain more
LEAST_STEPS, MOST_STEPS = TrainerSettings.max_steps, 3000
ROWS_A_POINT = 4  # at least, that are learned from, or that a refit of q(u) sees
_STEP_SIZES = {"posterior_samples", "posterior_rows", "batch_size"}
_FEW_SAMPLES, _LEAST_BATCH = 8, 128
_MANY_POINTS = 1024, 512  # inducing points on a GPU, where there is time; more were not measured
_REFIT = 1 / 3  # of an evaluation with its gradient: what a refit of q(u) takes, and a pass over all rows without a gradient
_VALUES = 3.0  # times what is reckoned: what values of the kernel take in a pass beside the algebra, if inputs are small
_PAIRS = 3.0  # values between a sample and an inducing point: what one between two samples of a row takes
_AFTER = 0.25  # of the time for learning: what the last q(u) may take when that is spent, and what measuring the bound may

Inputs = Float[Tensor, "rows *features"] | RowSource


def evaluation_cost(model: InvariantGP, likelihood: Likelihood, x: Inputs, samples: int, rows: int) -> Cost:
    """The collapsed bound of so many rows, with so many samples of each, and its gradient."""
    # A turn costs about as much as a covariance with its gradient.
    covariances = len(model.q_sqrt) * covariances_and_turns(likelihood)[1]
    dim = model.covariance.num_features(first(x, 1))
    work = Workload(samples, dim, x.device, double=x.dtype == torch.float64)
    return work.collapsed(rows, len(model.inducing), model.inducing_samples, covariances)


def step_seconds(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> float:
    """One stochastic step: a refit of q(u) on many rows, and a gradient on a batch."""
    return _refit_seconds(model, likelihood, x, options) + _gradient_seconds(model, likelihood, x, options)


def _refit_seconds(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> float:
    drawn = model.samples_per_row(options.posterior_samples or options.num_samples)
    return _REFIT * evaluation_cost(model, likelihood, x, drawn, min(len(x), options.posterior_rows)).seconds


def _gradient_seconds(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> float:
    drawn = model.samples_per_row(options.num_samples)
    return evaluation_cost(model, likelihood, x, drawn, min(len(x), options.batch_size)).seconds


def affordable_steps(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> TrainerSettings:
    """The same with smaller steps, where a CPU would not make a few hundred of them in ten minutes, or in its limit of time.

    A refit of q(u) then sees fewer draws and fewer rows, and a gradient fewer rows, each in half of the time for a step. What
    the user has set stays as it is.
    """
    problem, free = (model, likelihood, x), _STEP_SIZES - options.changed()
    seconds = min(SECONDS, options.max_seconds or SECONDS) / LEAST_STEPS
    if x.device.type != "cpu" or step_seconds(*problem, options) <= seconds:
        return options

    def with_most(options: TrainerSettings, name: str, least: int, cost: Callable[..., float]) -> TrainerSettings:
        """As many rows as there is time for, and no fewer than the least."""
        if name not in free:
            return options
        sizes = range(least, max(least, min(len(x), getattr(options, name))) + 1)
        found = bisect_right(sizes, seconds / 2, key=lambda rows: cost(*problem, options.set_params(**{name: rows})))
        return options.set_params(**{name: sizes[max(0, found - 1)]})

    if "posterior_samples" in free and options.num_samples is not None:
        options = replace(options, posterior_samples=min(options.num_samples, _FEW_SAMPLES))
    options = with_most(options, "posterior_rows", min(len(x), ROWS_A_POINT * len(model.inducing)), _refit_seconds)
    return with_most(options, "batch_size", min(len(x), _LEAST_BATCH), _gradient_seconds)


def default_steps(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> int:
    """As many steps as take ten minutes, but at least 300 and at most 3,000."""
    affordable = SECONDS / step_seconds(model, likelihood, x, options)
    return int(min(max(LEAST_STEPS, affordable), MOST_STEPS))


def for_learning(options: TrainerSettings) -> TrainerSettings:
    """The same with a limit of time that leaves some of it for what follows learning."""
    if options.max_seconds is None:
        return options
    return replace(options, max_seconds=options.max_seconds / (1 + 2 * _AFTER))


def rest_of(options: TrainerSettings) -> TimeLeft:
    """What follows a run that has such a limit of time for learning."""
    return TimeLeft(None if options.max_seconds is None else options.max_seconds * (1 + 2 * _AFTER))


def short_climb(evaluation: Callable[[int], Cost], draws: int, early: int) -> Cost:
    """A few evaluations of a bound: their time is that of the early ones, with few draws, their memory that of the last."""
    return Cost(evaluation(draws).bytes, FEW_EVALUATIONS * evaluation(early).seconds)


def most_inducing(
    work: Workload, early: int, rows: int, inducing_samples: int, covariances: int, seconds: float, memory: float
) -> int | None:
    """How many inducing points, more than usual, leave time and memory for a short climb of the bound; None if none do.

    Most evaluations have ``early`` draws. On one H200, 60,000 digits and affine maps in 60 s: 256 points -1,511,139 nats, 512
    -1,483,577, 1,024 -1,469,093.
    """

    def fits(points: int) -> bool:
        def evaluation(samples: int) -> Cost:
            return replace(work, samples=samples).collapsed(rows, points, inducing_samples, covariances)

        return affordable(short_climb(evaluation, work.samples, early), seconds, memory) is None

    return next((points for points in _MANY_POINTS if ROWS_A_POINT * points <= rows and fits(points)), None)


def seconds_on(device: torch.device, options: TrainerSettings) -> float:
    """What a climb may take at the reckoned speed of the device: as long as an exact fit, or the limit of time."""
    limit = math.inf if options.max_seconds is None else nominal_seconds(options.max_seconds, device)
    return min(options.exact_seconds, limit)


def pass_seconds(model: InvariantGP, likelihood: Likelihood, x: Inputs, rows: int, samples: int | None) -> float:
    """One pass over so many rows, with so many samples of each, without a gradient."""
    drawn = model.samples_per_row(samples)
    algebra, all_of_it = (evaluation_cost(model, likelihood, x, number, rows).seconds for number in (0, drawn))
    kernel = _VALUES * (all_of_it - algebra) * (1 + _PAIRS * drawn / model.num_points)
    return _REFIT * (algebra + kernel)


def passes_within(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Inputs,
    rows: int,
    samples: int | None,
    rest: TimeLeft,
    least: float,
    most: float,
    beside: int = 0,
) -> float:
    """How many passes over so many rows, with so many samples of each, may follow a run, and so many ``beside`` them.

    They take a share of what is left. Without a limit they take, without those beside them, a share of the time for a run at
    the nominal speed. A pass with a part of the samples is that part of one.
    """
    if rest.seconds is None:
        refit = _REFIT * evaluation_cost(model, likelihood, x, model.samples_per_row(samples), rows).seconds
        return min(max(least, _AFTER * SECONDS / refit), most)
    within = rest.share() / pass_seconds(model, likelihood, x, rows, samples)
    return min(max(least, within - beside), most)
