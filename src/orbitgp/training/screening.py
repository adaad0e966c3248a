"""Screening: where a sparse run starts.

The gradient of a stochastic run cannot escape a local optimum of the orbit's size, and takes many steps to bring noise and
lengthscale to their place. A few data have an exact evidence, which is cheap and without noise. So kernel, likelihood and orbit
are first learned from these (:mod:`orbitgp.training.ladder`), from narrower, wider and simpler starts, each until it has
settled. Then the inducing points are drawn from the orbit that was found, and the run goes on from there with all data.

The bound has the more slack the wider the orbit is, so it prefers narrow orbits. Where the likelihood is Gaussian in f, the
evidence of some data is exact, and the run keeps the orbit that it found: all else goes on with the bound. So this orbit is
learned as exact inference would learn it: from as many rows as there is time for in an exact fit, with draws that double until
they do not matter. A start for the rest takes a tenth of that.

The noise that fits a few data exactly is too small for a bound with slack. It may even have run off to its least value, where
it has no slope. So larger values are tried before the run goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource, fetch, first
from orbitgp.likelihoods import Gaussian, Likelihood
from orbitgp.machine import free_memory
from orbitgp.orbits import FiniteOrbit
from orbitgp.planning.cost import Workload
from orbitgp.planning.device_speed import nominal_seconds
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.rungs import LEAST_DRAWS, rungs
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.ladder import Ladder
from orbitgp.training.objective import representative_order
from orbitgp.training.records import Record

logger = logging.getLogger("orbitgp")

SHORTEST = 100  # steps: a shorter run starts as it is given
SAMPLES = 16  # elements of a finite orbit, or draws of one that is not learned here
_SHARE = 0.25  # of the time of the run
_SORTED_ROWS = 200_000  # of more data, so many are sorted by their labels
_LEAST_ROWS = 2  # to start from, however large they are
_OF_EXACT = 0.1  # of the time that an exact fit may take: what a start takes where the orbit is not learned here
_NOISE_ROWS = 2000  # that say how much noise the bound needs
_LARGER = 4.0  # times the noise: what is tried next


def is_needed(likelihood: Likelihood, options: TrainerSettings) -> bool:
    """Whether a run is screened: some data are to be used for it, they have an exact evidence, and the run is long enough."""
    return options.start_rows > 0 and not likelihood.couples and options.max_steps >= SHORTEST


def keeps_orbit(likelihood: Likelihood) -> bool:
    """Whether a run keeps the orbit that is found here: its evidence is exact."""
    return not likelihood.num_locals


def climb(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Float[Tensor, "rows *features"] | RowSource,
    y: Float[Tensor, "rows *outputs"],
    options: TrainerSettings,
    stopped: Callable[[Record], bool],
) -> None:
    """Leave kernel, likelihood, prior mean and orbit where as many rows lead as there is time for.

    ``stopped`` sees every record on the way, and says whether to stop there.
    """
    orbit = model.orbit
    elements = min(orbit.size, SAMPLES) if isinstance(orbit, FiniteOrbit) else None
    learns_orbit = keeps_orbit(likelihood) and any(parameter.requires_grad for parameter in orbit.parameters())
    samples = elements or (LEAST_DRAWS if learns_orbit else SAMPLES)
    tables = orbit.table_bytes(x.shape[1:])
    dim = model.covariance.num_features(first(x, 1))
    work = Workload.of(likelihood, samples, dim, x.device, x.dtype == torch.float64, tables)
    # Processes that share the data must end at the same place, and have different clocks.
    limit = None if options.max_seconds is None or processes.count() > 1 else _SHARE * options.max_seconds
    allowed = inf if limit is None else nominal_seconds(limit, x.device)
    seconds = min((1.0 if learns_orbit else _OF_EXACT) * options.exact_seconds, allowed)
    memory = free_memory(x.device)
    count = work.most_rows(seconds, memory, len(x))
    if count < options.start_rows:  # whatever the time
        count = max(_LEAST_ROWS, work.most_rows(inf, memory, min(options.start_rows, len(x)), step=1))
    rows = _representative_rows(y, count, options.seed).to(x.device)
    x, y = fetch(x, rows), y[rows]
    exact = ExactGP(model.kernel, orbit, x, model.num_latents, num_samples=elements, by_bound=True).to(x.device)
    exact.prior_mean = model.prior_mean  # shared, as kernel and orbit are
    most = work.most_samples(count, count, seconds, memory) if learns_orbit else samples
    climber = Ladder(
        model=exact,
        likelihood=likelihood,
        x=x,
        y=y,
        rungs=rungs(count, None if exact.is_enumerated else most, several=True, fixed_draws=elements is not None),
        options=options,
        limit=TimeLimit(limit),
    )
    climber.callback = lambda record: climber.stop() if stopped(record) else None
    climber.learn()
    if not climber.stopped:
        logger.info("kernel and orbit start from the exact evidence of %d rows.", len(rows))


@torch.no_grad()
def raise_noise(
    model: InvariantGP,
    likelihood: Likelihood,
    x: Float[Tensor, "rows *features"] | RowSource,
    y: Float[Tensor, "rows *outputs"],
    seed: int,
) -> None:
    """Multiply a learned Gaussian noise as long as the bound at its best q(u) rises, on some rows."""
    learned = [part for part in likelihood.modules() if isinstance(part, Gaussian) and part.log_noise.requires_grad]
    if not learned:
        return
    rows = _representative_rows(y, min(_NOISE_ROWS, len(x)), seed).to(x.device)
    samples = None if isinstance(model.orbit, FiniteOrbit) and model.orbit.size <= SAMPLES else SAMPLES
    collapsed, y = CollapsedGP(model, fetch(x, rows), samples), y[rows]

    def bound() -> float:
        try:
            return collapsed.log_evidence(likelihood, y)
        except FloatingPointError:
            return -inf

    for part in learned:
        best, highest = part.log_noise.clone(), -inf
        while (found := bound()) > highest:
            best, highest = part.log_noise.clone(), found
            part.set_noise(_LARGER * max(float(part.noise), part.min_noise))
        part.log_noise.copy_(best)


def _representative_rows(y: Float[Tensor, "rows *outputs"], count: int, seed: int) -> Int[Tensor, " some"]:
    """Rows at random, with labels in their proportions. Of very many data some stand for all: sorting labels takes memory."""
    if len(y) <= _SORTED_ROWS:
        return representative_order(y, seed)[:count]
    some = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[: max(count, _SORTED_ROWS)]
    return some[representative_order(y[some.to(y.device)], seed)[:count]]
