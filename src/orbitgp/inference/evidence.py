"""The evidence: the log marginal likelihood of all training data, or a lower bound on it, with its Monte-Carlo error.

Anything that was fitted to draws is scored on fresh ones: local parameters come from one set of passes over the data,
the value from another. The standard error is that of the mean over passes with independent orbit samples; it says how
well the *bound* is known, not how far it lies below the log marginal likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from orbitgp.inference.elbo import Bound, elbo_of_all
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import AllInputs, RowIndex, first, owned, prefetch
from orbitgp.likelihoods import Likelihood
from orbitgp.likelihoods.base import Moments, Targets, required
from orbitgp.machine import in_smaller_chunks
from orbitgp.orbits import Samples
from orbitgp.orbits.sampling import Policy


def rounded(error: float, figures: int = 2) -> str:
    """An error with one or two figures, or all that stand before the point."""
    return f"{float(f'{error:.{figures}g}'):g}" if error < 10 else f"{error:,.0f}"


@dataclass(frozen=True, repr=False)
class Evidence:
    """The log marginal likelihood of the whole training set, in nats, or a lower bound on it.

    Comparable between models of the same data, likelihood and target units, and only there.

        >>> x = np.linspace(0, 1, 20)[:, None]
        >>> InvariantGPRegressor(random_state=0).fit(x, x[:, 0]).evidence_.exact
        True

    Attributes:
        value: the log marginal likelihood where ``exact``, about that where ``propagated``, else a lower bound on it.
        stderr: the error of ``value`` that orbit samples cause.
        num_data: the data.
        num_samples: orbit samples of each datum; None where the orbit was enumerated, or k_f has a closed form.
        likelihood: the name of the likelihood.
        exact: whether f was conditioned on exactly under a Gaussian likelihood. With S sampled draws, the value is that
            of fresh draws, which nothing was fitted to.
        upper: no log marginal likelihood of the scored model lies above (None: not computed).
        slack: an estimate of how far the value lies below the log marginal likelihood (None: not computed).
        num_learned: the data that the parameters were learned from, where that may be fewer than ``num_data``.
        converged: whether training came to its end. Where not, better parameters may have more evidence than ``upper``.
        propagated: whether expectation propagation conditioned f. The value is no bound, but lies ``slack`` below.
        embedded: whether the kernel compares means over orbits (:class:`orbitgp.kernels.MeanEmbedding`).
        shortfall: nats that parameters learned from all data might have more. Those of n of N rows lack 1/2 (N/n - 1)
            times a chi-squared variable with a degree of freedom for each parameter; that is exceeded in 1 % of cases.
    """

    value: float
    stderr: float
    num_data: int
    num_samples: int | None
    likelihood: str
    exact: bool = False
    upper: float | None = None
    slack: float | None = None
    num_learned: int | None = None
    converged: bool = True
    propagated: bool = False
    shortfall: float = 0.0
    embedded: bool = False

    @property
    def learned_from(self) -> int:
        """How many data the parameters were learned from: some, or all."""
        return self.num_learned or self.num_data

    def __float__(self) -> float:
        return self.value

    @property
    def is_bound(self) -> bool:
        """Whether the value is a lower bound, and may lie far below."""
        return not (self.exact or self.propagated)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the log marginal likelihood at the learned parameters lies: two errors around an exact value, or from a
        lower bound upwards.

        It is that of the infinite orbit. The error comes from the spread of several sets of fresh draws. The upper end
        of a bound is ``upper``, or twice the estimated slack above it, or infinite where neither is known. Expectation
        propagation knows its slack.
        """
        low = self.value - 2 * self.stderr
        if self.exact:
            return low, self.value + 2 * self.stderr
        if self.upper is not None:
            return low, self.upper + 2 * self.stderr
        return low, math.inf if self.slack is None else self.value + 2 * self.slack + 2 * self.stderr

    @property
    def interval_of_best(self) -> tuple[float, float]:
        """The same at the best parameters, which may lie ``shortfall`` above, or anywhere if training met a limit."""
        low, high = self.interval
        return low, high + self.shortfall if self.converged else math.inf

    def shifted(self, by: float) -> Evidence:
        """The same in other units of the targets."""
        return replace(self, value=self.value + by, upper=None if self.upper is None else self.upper + by)

    def __str__(self) -> str:
        error = f" ± {rounded(self.stderr)}" if self.stderr >= 0.005 else ""  # less than the last figure of the value
        details = [f"{self.num_data:,} data", f"{self.likelihood} likelihood"]
        if self.learned_from < self.num_data:
            details[0] = f"learned on {self.learned_from:,} of {self.num_data:,} data"
        if self.num_samples is not None:
            details.append(f"{self.num_samples} fresh draws")
        if self.embedded:
            details.append("mean embedding")
        if self.exact:
            return f"{self.value:,.1f}{error} nats ({', '.join(['exact', *details])})"
        if self.upper is not None and self.converged:
            matters = self.stderr > 0.1 * max(1.0, self.upper - self.value)  # against width and rounding of the ends
            digits = 0 if self.upper - self.value >= 1 else 1
            low, high = (f"{end:,.{digits}f}{error if matters else ''}" for end in (self.value, self.upper))
            return f"between {low} and {high} nats ({', '.join(details)})"
        if self.propagated:
            low = f", about {self.slack:.1f} too low" if self.slack is not None and self.slack >= 0.05 else ""
            said = f"by expectation propagation{low}"
            return f"{self.value:,.1f}{error} nats ({', '.join([said, *details])})"
        slack = [] if self.slack is None else [f"slack about {self.slack:,.0f}"]
        return f"≥ {self.value:,.1f}{error} nats ({', '.join([*slack, *details])})"

    __repr__ = __str__


def drawn(
    model: InvariantGP,
    x: AllInputs,
    index: RowIndex,
    num_samples: int | None,
    sampler: Policy,
    generator: torch.Generator | None,
    following: Int[Tensor, " others"] | None = None,
) -> Iterator[tuple[RowIndex, Samples]]:
    """Fresh orbit samples of this process's part of these rows, so few at a time that their kernel fits into memory.

    What comes next is read from disk meanwhile; after the last rows, ``following``.
    """
    pieces = index.split(model.rows_at_once(x, num_samples))
    for piece, upcoming in zip(pieces, (*pieces[1:], index[:0] if following is None else following), strict=True):
        part = owned(x, piece)
        samples = model.orbit.sample(x[part.rows], num_samples, 2, sampler, generator, part.among)
        prefetch(x, upcoming)
        if len(part.rows):
            yield part.rows, samples


@in_smaller_chunks
@torch.no_grad()
def measure_evidence(
    model: InvariantGP,
    likelihood: Likelihood,
    x: AllInputs,
    y: Targets,
    num_samples: int | None,
    *,
    passes: int,
    sampler: Policy = "qmc",
    local_passes: int = 4,
    generator: torch.Generator | None = None,
    most_rows: int | None = None,
) -> Evidence:
    """The bound over all data: the mean of ``passes`` independent estimates, its standard error, and its slack.

    Where there are more than ``most_rows`` data, each pass draws this number at random, and they stand for all.
    """
    factor, fresh = model.factor(), (num_samples, sampler, generator)

    def local_parameters(index: Tensor) -> Tensor | None:
        """The local parameters of these rows, in the place of each row."""
        if not likelihood.num_locals:
            return None
        passed = []
        for _ in range(local_passes):
            parts = (model.moments(model.whitened_means(xa, factor)) for _, xa in drawn(model, x, index, *fresh))
            passed.append(_combined(parts, torch.cat))
        own = owned(x, index).rows
        found = required(likelihood.local(y[own], _combined(passed, lambda terms: torch.stack(terms).mean(0))))
        return found.new_zeros(len(x), *found.shape[1:]).index_copy_(0, own, found)

    def bound(index: Tensor, local: Tensor | None) -> Bound:
        """The bound from one pass over these rows with fresh draws."""
        parts = drawn(model, x, index, *fresh)
        batches = ((samples, y[rows], None if local is None else local[rows]) for rows, samples in parts)
        return elbo_of_all(model, likelihood, batches, factor, scale=len(x) / len(index))

    with model.cached_inducing_features():
        # A finite orbit that is enumerated has no noise: one pass is enough.
        enumerated = model.orbit.sample(first(x, 1), num_samples, 2, sampler, generator).pairing.off == 0.0
        if most_rows is None or most_rows >= len(x):
            index = torch.arange(len(x), device=x.device)
            local = local_parameters(index)
            found = [bound(index, local) for _ in range(1 if enumerated else passes)]
        else:
            some = [torch.randperm(len(x), generator=generator, device=x.device)[:most_rows] for _ in range(passes)]
            found = [bound(index, local_parameters(index)) for index in some]
    values, slacks = torch.tensor(found, dtype=torch.float64).T
    return Evidence(
        value=float(values.mean()),
        stderr=0.0 if len(values) == 1 else float(values.std()) / math.sqrt(len(values)),
        num_data=len(x),
        num_samples=None if enumerated else num_samples,
        likelihood=type(likelihood).__name__,
        slack=max(0.0, float(slacks.mean())),
    )


def _combined(parts: Iterable[Moments], combine: Callable[[tuple[Tensor, ...]], Tensor]) -> Moments:
    """The moments of which ``parts`` are pieces or repetitions, combined tensor by tensor."""
    mean, second = zip(*parts, strict=True)
    return Moments(combine(mean), combine(second))
