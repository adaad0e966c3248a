"""Learning by the collapsed bound: the sparse model of few data climbs to a top, without noise and without learning rates.

With q(u) at its best in closed form and fixed draws of the orbit, the bound is a plain function of kernel, likelihood, orbit
and inducing points (:mod:`orbitgp.inference.collapsed`). It is climbed as the exact evidence is, with more and more draws.
First the inducing points stay where they are: the noise that an exact start has found is too small for a bound with slack, and
must rise before the points have anything to say. Thousands of inducing coordinates gain a little for hundreds of evaluations: a
climb ends where that is next to nothing beside the slack of the bound.

This is how a sparse run learns where all data can be seen in every step. Where they are too many, where the likelihood couples
its latent functions, or where an option was set that only stochastic steps have, it takes stochastic steps. Where these would
take too long, too, it climbs the bound of some rows, and all rows have their say in the last q(u).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.climb_size import ClimbSize
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import rungs
from orbitgp.planning.sparse_cost import (
    pass_seconds,
    passes_within,
)
from orbitgp.planning.time_limit import TimeLeft, TimeLimit
from orbitgp.training.ladder import Ladder

_POSTERIOR_DRAWS = 512  # of an infinite orbit, that the last q(u) is made from


def collapsed_ladder(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Float[Tensor, "rows *features"],
    y: Float[Tensor, "rows *outputs"],
    options: TrainerSettings,
    size: ClimbSize,
    **watching: Any,
) -> Ladder:
    """The climb of a collapsed bound from where the model is; ``watching`` are callbacks and progress of the run.

    The noise that an exact start has found is too small for a bound with slack, and must rise before the inducing points have
    anything to say. So these stay where they are on the first rung.
    """
    finite = isinstance(model.orbit, FiniteOrbit)
    fixed = options.climb_samples is not None
    rising = rungs(size.rows, None if finite else size.draws, several=False, fixed_draws=fixed)
    learns_noise = any(parameter.requires_grad for parameter in likelihood.parameters())
    if model.inducing.requires_grad and learns_noise:
        rising = [rising[-1]._replace(draws=rising[0].draws, holds_points=True), *rising]
    return Ladder(
        model=CollapsedGP(model, x),
        likelihood=likelihood,
        x=x,
        y=y,
        rungs=[rung for rung in rising if rung.rows == size.rows],
        options=options,
        several=False,
        limit=TimeLimit(options.max_seconds),
        max_steps=size.evaluations,
        **watching,
    )


def set_last_posterior(climb: Ladder, rest: TimeLeft) -> None:
    """With all else fixed, the best q(u): that on many fixed draws of the orbit, or as many as there is time for."""
    collapsed, likelihood, x, y = climb.model, climb.likelihood, climb.x, climb.y
    assert isinstance(collapsed, CollapsedGP)
    draws, local, sparse = None, None, collapsed.sparse
    pass_over = sparse, likelihood, x, len(x)
    if likelihood.num_locals:
        with rest.timed(pass_seconds(*pass_over, collapsed.num_samples)):
            local = collapsed.condition(likelihood, y).local
    if not isinstance(collapsed.orbit, FiniteOrbit):
        least = (collapsed.num_samples or 1) / _POSTERIOR_DRAWS
        draws = int(_POSTERIOR_DRAWS * passes_within(*pass_over, _POSTERIOR_DRAWS, rest, least, most=1.0))
    with rest.timed(pass_seconds(*pass_over, draws)):
        CollapsedGP(sparse, x, draws).set_posterior(likelihood, y, local)


def pace_of(climb: Ladder) -> float:
    """Seconds of this machine for one that a pass over the data should take, by the posterior that ended the climb."""
    assert isinstance(climb.model, CollapsedGP)
    sparse, samples = climb.model.sparse, climb.model.num_samples
    return climb.condition_seconds / pass_seconds(sparse, climb.likelihood, climb.x, climb.learn_rows, samples)


@contextmanager
def held(parameters: Sequence[Parameter]) -> Iterator[None]:
    """Learn none of these within this context."""
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    try:
        for parameter in learned:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_(True)
