"""How long a sparse run may take: what its steps cost, and how many of them it may take where the user sets no limit.

Seconds are those of a nominal speed of the device (:mod:`orbitgp.inference.cost`), so the same data get the same limit on every
day and on every machine.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.cost import Cost, Workload, covariances_and_turns
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import Rows, first
from orbitgp.likelihoods import Likelihood
from orbitgp.training.options import TrainerSettings

PATIENCE = 4.0  # times an exact fit: what a run may take where nothing quicker is possible
SECONDS = PATIENCE * TrainerSettings.exact_seconds  # of stochastic steps, by default
EVALUATIONS = 100  # of a bound, that a climb takes, about
LEAST_STEPS, MOST_STEPS = TrainerSettings.max_steps, 3000
_REFIT = 1 / 3  # of an evaluation with its gradient: what a refit of q(u) takes, and a pass over all rows without a gradient
_AFTER = 0.25  # of the time for learning: what the last q(u) may take when that is spent, and what measuring the bound may

Inputs = Float[Tensor, "rows *features"] | Rows


def evaluation_cost(model: InvariantGP, likelihood: Likelihood, x: Inputs, samples: int, rows: int) -> Cost:
    """The collapsed bound of so many rows, with so many samples of each, and its gradient."""
    # A turn costs about as much as a covariance with its gradient.
    covariances = len(model.q_sqrt) * covariances_and_turns(likelihood)[1]
    dim = model.covariance.num_features(first(x, 1))
    work = Workload(samples, dim, x.device, double=x.dtype == torch.float64)
    return work.collapsed(rows, len(model.inducing), model.inducing_samples, covariances)


def step_seconds(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> float:
    """One stochastic step: a refit of q(u) on many rows, and a gradient on a batch."""
    drawn = model.samples_per_row(options.num_samples)
    refit = evaluation_cost(model, likelihood, x, drawn, min(len(x), options.posterior_rows))
    gradient = evaluation_cost(model, likelihood, x, drawn, min(len(x), options.batch_size))
    return _REFIT * refit.seconds + gradient.seconds


def default_steps(model: InvariantGP, likelihood: Likelihood, x: Inputs, options: TrainerSettings) -> int:
    """As many steps as take ten minutes, but at least 300 and at most 3,000."""
    affordable = SECONDS / step_seconds(model, likelihood, x, options)
    return int(min(max(LEAST_STEPS, affordable), MOST_STEPS))


def for_learning(options: TrainerSettings) -> TrainerSettings:
    """The same with a limit of time that leaves some of it for what follows learning."""
    if options.max_seconds is None:
        return options
    return replace(options, max_seconds=options.max_seconds / (1 + 2 * _AFTER))


def passes_within(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Inputs,
    rows: int,
    samples: int | None,
    options: TrainerSettings,
    least: float,
    most: float,
) -> float:
    """How many passes over so many rows, with so many samples of each, may follow a run, in a share of its time.

    A pass with a part of the samples is that part of one.
    """
    limit = SECONDS if options.max_seconds is None else options.max_seconds
    seconds = _REFIT * evaluation_cost(model, likelihood, x, model.samples_per_row(samples), rows).seconds
    return min(max(least, _AFTER * limit / seconds), most)
