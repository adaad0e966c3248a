"""The evidence of a fitted model, with its error and, where that can be computed, an upper bound."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import torch
from scipy.stats import chi2

from orbitgp.inference.dense_posterior import Posterior, missing_nats
from orbitgp.inference.evidence import Evidence, measure_evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.rows import RowSource
from orbitgp.kernels.feature_maps import embeds_means
from orbitgp.likelihoods.base import required
from orbitgp.machine import free_memory
from orbitgp.planning.cost import Workload, obstacle
from orbitgp.planning.rungs import LEAST_DRAWS, LEAST_ROWS
from orbitgp.planning.sparse import MOST_PASSES, pass_seconds
from orbitgp.training.ladder import Ladder
from orbitgp.training.trainer import Trainer

UPPER_SECONDS = 5.0  # the most time that an upper bound may take
EVIDENCE_SAMPLES = 2 * LEAST_DRAWS  # for each datum, at least; an eighth of these where they take too long


def exact_evidence(climber: Ladder, solution: Posterior[Any]) -> Evidence:
    """The evidence with fresh draws, and its error.

    Where parameters were learned from some rows, what fresh draws change of these is taken in proportion to all.
    """
    rows, share, count = len(climber.x), len(climber.x) / climber.learn_rows, len(climber.learned.get())
    likelihood, slack = climber.likelihood, None
    if isinstance(climber.model, ExactGP) and likelihood.knows_tilted:
        slack = missing_nats(likelihood, climber.y, required(solution.local), solution.system)
    return Evidence(
        value=solution.log_evidence + share * climber.draw_shift,
        stderr=share * climber.draw_error,
        num_data=rows,
        num_samples=climber.model.num_samples,
        likelihood=type(likelihood).__name__,
        exact=not likelihood.num_locals,
        propagated=slack is not None,
        slack=slack,
        num_learned=climber.learn_rows,
        converged=climber.converged,
        shortfall=0.5 * (share - 1) * float(chi2.isf(0.01, count)) if count else 0.0,
        embedded=embeds_means(climber.model.kernel),
    )


def sparse_evidence(trainer: Trainer, generator: torch.Generator) -> Evidence:
    """The bound on draws that training has not seen. At least two passes over the data tell its error.

    Of data on disk, a pass sees as many rows as three refits of q(u).
    """
    samples = trainer.options.num_samples
    if samples is not None and samples < EVIDENCE_SAMPLES:
        samples = EVIDENCE_SAMPLES
    problem = trainer.model, trainer.likelihood, trainer.x
    on_disk = isinstance(trainer.x, RowSource) and trainer.x.block > 1
    rows = min(len(trainer.x), 3 * trainer.options.posterior_rows) if on_disk else len(trainer.x)
    each = 1.5 if trainer.likelihood.num_locals else 1.0  # half as many passes find local parameters

    def passes(least: float = 0.0) -> float:
        """How many there is time for."""
        within = trainer.rest.share() / pass_seconds(*problem, rows, samples)
        return min(max(least, within / each), float(MOST_PASSES))

    while samples is not None and samples > EVIDENCE_SAMPLES // 8 and passes() < 2:
        samples = 2 * -(-samples // 4)  # two groups of equal size
    while trainer.stopped and rows > LEAST_ROWS and passes() < 2:
        rows //= 2
    whole = samples is None and rows == len(trainer.x)  # whole orbits of all data have no noise
    count = 1 if whole else int(passes(2.0))
    local_passes = ceil((each - 1) * count)
    with trainer.rest.timed((count + local_passes) * pass_seconds(*problem, rows, samples)):
        evidence = measure_evidence(
            *problem,
            trainer.y,
            samples,
            sampler=trainer.options.sampler,
            passes=count,
            local_passes=local_passes,
            generator=generator,
            most_rows=rows,
        )
    evidence = replace(evidence, num_learned=trainer.learn_rows, converged=trainer.converged)
    upper = _upper(trainer, evidence)
    return evidence if upper is None else bounded(evidence, upper)


def bounded(evidence: Evidence, upper: float) -> Evidence:
    """The evidence with its upper bound. A lower bound above that is clipped to it, by at most 5 standard errors.

    The noise of the draws grows with the variance of the kernel over the noise of the data. It may be millions of nats.
    """
    value = min(evidence.value, max(upper, evidence.value - 5 * evidence.stderr))
    return replace(evidence, value=value, upper=max(upper, value))


def _upper(trainer: Trainer, evidence: Evidence) -> float | None:
    """Upper bound on the log evidence, or None: that of exact inference with fixed draws, where time allows."""
    model, likelihood, x = trainer.model, trainer.likelihood, trainer.x
    if isinstance(x, RowSource) or likelihood.num_locals:
        return None
    samples = None if evidence.num_samples is None else LEAST_DRAWS
    work = Workload.of(model, likelihood, x, model.samples_per_row(samples))
    if obstacle(work.conditioning(len(x)), min(UPPER_SECONDS, trainer.rest.share()), free_memory(x.device)):
        return None
    exact = ExactGP(model.kernel, model.orbit, x, model.num_latents, num_samples=samples)
    exact.prior_mean = model.prior_mean
    return exact.log_evidence(likelihood, trainer.y)
