"""Updates of q(u) in closed form while everything else moves (``inference.natural_gradient`` has the formulas).

An update takes fresh orbit samples of a large batch, forward only, and mixes their statistics with those of the last
updates. Updates cycle through the data, so their average weights every datum equally. Where the likelihood has local
parameters, an update also finds those of the data that it sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.inference.evidence import drawn
from orbitgp.inference.local_parameters import LocalParameters, Setting
from orbitgp.inference.moments import WhitenedMeans
from orbitgp.inference.natural_gradient import Statistics, set_posterior, statistics, total
from orbitgp.inference.rows import Minibatches, RowIndex
from orbitgp.kernels.cholesky import cholesky
from orbitgp.machine import in_smaller_chunks
from orbitgp.planning.options import TrainerSettings

Factor = Float[Tensor, "inducing inducing"]


class PosteriorUpdates:
    """q(u) of a model in training.

    ``enumerated``: samples are whole orbits. ``stats`` are the statistics that q(u) was made from, and ``blend`` is the
    share of their biased part.
    """

    def __init__(
        self, local: LocalParameters, options: TrainerSettings, rng: torch.Generator, enumerated: bool
    ) -> None:
        self.model, self.likelihood, self.x, self.y = local.setting
        self.local, self.options = local, options
        self.generator, self.enumerated = rng, enumerated
        self.minibatches = Minibatches(self.x, rng)
        self.stats: Statistics | None = None
        self.blend = 0.0
        self.failed_jitter = 0.0  # the largest with which Kuu had no factor

    @property
    def size(self) -> int:
        """Data that an update sees."""
        return min(len(self.x), self.options.posterior_rows)

    def rho(self, slow: float = 1.0, partial: bool | None = None) -> float:
        """The natural-gradient step: shorter where q(u) sees a part of the data, or feeds noise back.

        ``slow`` is the factor of the learning rates. As everything else slows down, q(u) may average over more steps
        without lagging behind, and its noise falls away.
        """
        partial = self.size < len(self.x) if partial is None else partial
        # Local parameters from the same draws feed the noise of those draws back.
        fed_back = self.likelihood.num_locals > 0 and not self.enumerated
        damping = (0.5 if partial else 1.0) * (0.5 if fed_back else 1.0)
        return damping * max(slow, 0.1)

    @in_smaller_chunks
    @torch.no_grad()
    def update(self, rho: float, size: int | None = None) -> None:
        """Refit q(u), and the local parameters of the data that it sees, from fresh orbit samples of ``size`` data."""
        size = size or self.size
        rows = self.minibatches.take(size) if size < len(self.x) else torch.arange(len(self.x), device=self.x.device)
        following = self.minibatches.upcoming(min(size, self.model.rows_at_once(self.x, self.num_samples)))
        fresh = drawn(self.model, self.x, rows, self.num_samples, self.options.sampler, self.generator, following)
        with self.model.cached_inducing_features():
            factor, self.failed_jitter = fit_jitter(self.local.setting, self.options.jitter, self.failed_jitter)
            parts = ((own, self.model.whitened_means(samples, factor)) for own, samples in fresh)
            stats = self._total(self._statistics(*part) for part in parts).scale(len(self.x) / size)
            self.stats = stats if self.stats is None else self.stats.mix(stats, rho)
            self.blend = set_posterior(self.model, self.stats)

    def state_dict(self) -> dict[str, Any]:
        """What the next updates depend on. The jitter of the model is among it, since updates may raise it."""
        return {
            "stats": None if self.stats is None else tuple(self.stats),
            "blend": self.blend,
            "jitter": self.model.jitter,
            "failed_jitter": self.failed_jitter,
            "minibatches": self.minibatches.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.stats = None if state["stats"] is None else Statistics(*state["stats"])
        self.blend, self.model.jitter, self.failed_jitter = state["blend"], state["jitter"], state["failed_jitter"]
        self.minibatches.load_state_dict(state["minibatches"])

    @property
    def num_samples(self) -> int | None:
        """Orbit samples of each datum that an update sees; None for whole orbits."""
        return self.options.posterior_samples or self.options.num_samples

    def _total(self, parts: Iterable[Statistics]) -> Statistics:
        """The statistics of all parts together, over all processes."""
        if processes.count() == 1:
            return total(parts)
        square, linear = torch.zeros_like(self.model.q_sqrt), torch.zeros_like(self.model.q_mean)
        sums = total(chain([Statistics(square, square.clone(), linear)], parts))
        processes.all_reduce(sums)
        return sums

    def _statistics(self, rows: RowIndex, means: WhitenedMeans) -> Statistics:
        """The statistics of these data, with the local parameters that fit their moments."""
        local = None
        if self.likelihood.num_locals:
            local = self.local.refit(rows, self.model.moments(means))
        return statistics(self.model, means, self.likelihood.quadratic(self.y[rows], local), num_data=len(rows))


@torch.no_grad()
def fit_jitter(setting: Setting, share: float, failed: float = 0.0) -> tuple[Factor, float]:
    """The factor of Kuu, and the largest jitter with which there was none, which was ``failed`` before.

    The jitter of the model falls to this share of the noise of the data where that is less, but not to one that failed.
    In float32 it must also be large against the rounding of k_u, and stays. Where inducing points have come so close
    that there is no factor, the jitter is raised for good.
    """
    model, likelihood, _, y = setting
    if model.dtype == torch.float64 and not likelihood.num_locals:
        wanted = share / float(likelihood.quadratic(y, None).lam.max())
        if failed < wanted < model.jitter:
            model.jitter = wanted
    factor, added = cholesky(model.inducing_covariance())
    if added:
        failed = model.jitter
        model.jitter += added * float(factor.square().sum(1).mean())  # of the diagonal of Kuu
    return factor, failed
