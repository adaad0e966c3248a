"""Screening: where a sparse run starts.

The gradient of a stochastic run cannot escape a local optimum of the orbit's size, and takes many steps to bring noise and
lengthscale to their place. A few data have an exact evidence, which is cheap and without noise. So kernel, likelihood and orbit
are first learned from these (:mod:`orbitgp.training.quasi_newton`), from narrower, wider and simpler starts, each until it has
settled. Then the inducing points are drawn from the orbit that was found, and the run goes on from there with all data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit
from orbitgp.training.options import TrainerSettings
from orbitgp.training.quasi_newton import QuasiNewton

SHORTEST = 100  # steps: a shorter run starts as it is given
SAMPLES = 16  # draws of an infinite orbit, or elements of a finite one
_SHARE = 0.25  # of the time of the run


@runtime_checkable
class Run(Protocol):
    """What screening needs of a :class:`~orbitgp.training.trainer.Trainer`."""

    model: InvariantGP
    likelihood: Likelihood
    x: Tensor
    y: Tensor
    options: TrainerSettings
    screened: bool
    stopped: bool

    def timed(self) -> AbstractContextManager[None]: ...
    def redraw_inducing(self) -> None: ...


def is_needed(likelihood: Likelihood, options: TrainerSettings) -> bool:
    """Whether a run is screened: some data are to be used for it, they have an exact evidence, and the run is long enough."""
    return options.start_rows > 0 and not likelihood.couples and options.max_steps >= SHORTEST


def choose_start(run: Run) -> None:
    """Leave kernel, likelihood, prior mean and orbit at the best start. A run that is stopped meanwhile has made no choice."""
    with run.timed():
        _climb(run)
        if run.stopped:
            return
        run.redraw_inducing()
        run.screened = True


def _climb(run: Run) -> None:
    model, options, orbit = run.model, run.options, run.model.orbit
    order = torch.randperm(len(run.x), generator=torch.Generator().manual_seed(options.seed))
    rows = order[: options.start_rows].to(run.x.device)
    x, y = run.x[rows], run.y[rows]
    exact = ExactGP(model.kernel, orbit, x, model.num_latents).to(x.device)
    exact.prior_mean = model.prior_mean  # shared, as kernel and orbit are
    limit = None if options.max_seconds is None else _SHARE * options.max_seconds
    elements = min(orbit.size, SAMPLES) if isinstance(orbit, FiniteOrbit) else None
    climber = QuasiNewton(
        exact, run.likelihood, x, y, replace(options, max_seconds=limit), num_samples=elements, most_samples=SAMPLES
    )
    climber.callback = lambda _: climber.stop() if run.stopped else None
    climber.run()
