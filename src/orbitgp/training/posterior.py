"""q(u) in closed form, again and again while everything else moves (``inference.natural_gradient`` has the formulas).

A refit takes fresh orbit samples of a large batch, forward only, and mixes what they say with what the last refits said.
Batches go round: refits that are averaged see all data alike, and what one batch has too much of, the others make good. Where
the likelihood has local parameters, a refit finds those of the data that it sees, too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference.evidence import chunks
from orbitgp.inference.local_parameters import LocalSource
from orbitgp.inference.minibatches import Epochs
from orbitgp.inference.model import Projection
from orbitgp.inference.natural_gradient import Statistics, set_posterior, statistics
from orbitgp.orbits import Samples
from orbitgp.training.diagnostics import Health
from orbitgp.training.options import TrainerSettings

Rows = Int[Tensor, " rows"]

_COUNTS_AS = 4  # passes, of MNIST with 300 inducing points: 0 and 19 are worse, with parts of the data and with all
_JITTERS = 4  # times that the jitter may grow tenfold before training gives up


class Refits:
    """q(u) of a model in training.

    ``sample(rows, num_samples)`` draws from the orbits of these data; ``enumerated`` says that it gives whole orbits. ``stats``
    is what q(u) was made from, ``blend`` how much of its biased part, and ``rounds`` how often q(u) and the local parameters
    take turns in one refit.
    """

    def __init__(
        self,
        local: LocalSource,
        options: TrainerSettings,
        sample: Callable[[Rows, int | None], Samples],
        generator: torch.Generator,
        enumerated: bool,
        health: Health,
    ) -> None:
        self.model, self.likelihood, self.x, self.y = local.setting
        self.local, self.options, self.health = local, options, health
        self.sample, self.enumerated = sample, enumerated
        # Fitted to the same draws in turns, q(u) and local parameters would chase the noise of those draws.
        in_turns = options.optimizer == "natural" and enumerated and local.follows_posterior
        self.rounds = options.local_rounds if in_turns else 1
        self.epochs = Epochs(len(self.x), generator)
        self.stats: Statistics | None = None
        self.blend = 0.0

    @property
    def size(self) -> int:
        """How many data a refit sees."""
        return min(len(self.x), self.options.posterior_rows)

    def rho(self, slow: float = 1.0, partial: bool | None = None) -> float:
        """The natural-gradient step: shorter where q(u) sees a part of the data, or updates coupled functions side by side.

        As everything else slows down, q(u) may average over more steps without lagging behind, and its noise falls away.
        """
        partial = self.size < len(self.x) if partial is None else partial
        # Jacobi's iteration over latent functions that pull at each other swings unless it is damped; and with local parameters
        # from the same draws, the noise of draws is fed back.
        fed_back = self.likelihood.couples or (self.likelihood.num_locals > 0 and not self.enumerated)
        damping = (0.5 if partial else 1.0) * (0.5 if fed_back else 1.0)
        return self.options.posterior_rho * damping * max(slow, 0.1)

    @torch.no_grad()
    def update(self, rho: float, size: int | None = None) -> None:
        """Refit q(u), and the local parameters of the data that it sees, from fresh orbit samples of so many data."""
        options, count, size = self.options, len(self.x), size or self.size
        rows = self.epochs.take(size) if size < count else torch.arange(count, device=self.x.device)
        num_samples = options.posterior_samples or options.num_samples
        with self.model.holding_still():
            factor = self._factor()
            pieces = [rows[piece] for piece in chunks(self.x[:size], self.model, num_samples)]
            # Moments need a = L^-1 k_u of every datum; without local parameters the sums of k_u will do.
            whole = self.likelihood.num_locals > 0
            projections = ((part, self._project(self.sample(part, num_samples), factor if whole else None)) for part in pieces)
            # Local parameters follow q(u) and q(u) follows them, so the two take turns: the gradient then sees the bound at its
            # best, which lets the kernel move in long steps.
            kept = projections if self.rounds == 1 else list(projections)
            before = self.stats
            for _ in range(self.rounds):
                total: Statistics | None = None
                for part, projection in kept:
                    stats = self._statistics(part, projection)
                    total = stats if total is None else Statistics(*(a + b for a, b in zip(total, stats, strict=True)))
                assert total is not None
                total = Statistics(*(term * (count / size) for term in (total if whole else total.whitened(factor))))
                # Coupled latent functions are damped from round to round, averages over parts of the data from step to step.
                last = self.stats if self.likelihood.couples else before
                self.stats = total if last is None else last.mix(total, rho)
                self.blend = set_posterior(self.model, self.stats, self.blend)
        self.health.saw_refit(self.blend)

    def polish(self, passes: int) -> None:
        """With all else fixed, q(u) from an average over passes over all data: noise out, nothing else changed.

        What the last refits have averaged counts as some passes: it is a little behind, and less noisy than one.
        """
        before = 0 if self.enumerated else _COUNTS_AS
        for i in range(before, before + passes):
            self.update(min(1.0 / (i + 1), self.rho(partial=False)), len(self.x))

    @torch.no_grad()
    def refresh_local(self) -> None:
        """Local parameters of all data from the current q(f), where they follow it."""
        if not self.local.follows_posterior:
            return
        with self.model.holding_still():
            factor = self.model.factor()
            index = torch.arange(len(self.x), device=self.x.device)
            for rows in chunks(self.x, self.model, self.options.num_samples):
                samples = self.sample(index[rows], self.options.num_samples)
                moments = self.model.moments(self.model.project(samples, factor), cross=self.likelihood.couples)
                self.local.refit(index[rows], moments)

    def _factor(self) -> Float[Tensor, "inducing inducing"]:
        """The factor of Kuu. Where there is none, as inducing points have come too close, the jitter grows until there is."""
        for _ in range(_JITTERS):
            factor = self.model.try_factor()
            if factor is not None:
                return factor
            self.model.jitter *= 10
            self.health.failed_factors += 1
        return self.model.factor()

    def _project(self, samples: Samples, factor: Tensor | None) -> Projection:
        return self.model.kernel_means(samples) if factor is None else self.model.project(samples, factor)

    def _statistics(self, rows: Rows, projection: Projection) -> Statistics:
        moments = self.model.moments(projection, cross=self.likelihood.couples) if self.likelihood.num_locals else None
        local = None if moments is None else self.local.refit(rows, moments)
        quadratic = self.likelihood.quadratic(self.y[rows], local)
        return statistics(self.model, projection, quadratic, num_data=len(rows))
