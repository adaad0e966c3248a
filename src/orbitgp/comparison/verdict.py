"""Which orbit is best, and how certain that is: statistics of a small table of bounds.

Rows are orbits, columns are seeds. A seed is a restart: the same one decides the same draws for every orbit, so differences are
taken within a seed (paired). Their scatter over seeds is that of restarts and of Monte-Carlo draws together; with few seeds it
is pooled over all orbits (the residuals of the additive table, orbit + seed), and never taken to be less than a pair's own
scatter, or than the Monte-Carlo errors alone.

A difference counts if it exceeds

- its own 95 % half-width;
- MIN_NATS: below that, the data hardly prefer either orbit, however exactly the bounds are known;
- what the loser would still gain if training went on, less half of what the winner would (both are known to a factor of two);

and, where the loser has only a lower bound, if that bound's slack cannot make up for it, and if it loses less than half of
itself with twice the inducing points. Where inference was exact there are neither restarts nor inducing points to doubt.

What a run would still gain is read from the shape of its own history. The learning rates fall to zero at the end of a run, so
every bound is flat there, converged or not. Steps are therefore counted in *work*, the sum of the factors by which the rates
were multiplied: the first half of the steps does 1/2 of the work, the second half 1/4. Take three points with equal work
between them. A bound that approaches its limit exponentially gains g1, then g2 = r g1, and what is left is
r g2 + r^2 g2 + ... = g2^2 / (g1 - g2). Real runs have slower parts as well, so this is good to a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf, sqrt

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import norm, t

from orbitgp.orbits.description import listed
from orbitgp.training.diagnostics import Record

MIN_NATS = 3.0  # odds of 20 to 1
MORE = 2  # times the inducing points, to check whether the order depends on their number
_LEVEL = 0.975
_LOOSE = 0.1  # of a difference: the slack above which a bound is too loose to lose by it
# Fractions of the steps after which 1/4, 1/2 and 3/4 of work is done; each value is a mean over records nearby.
_WINDOWS = ((0.2, 0.3), (0.45, 0.55), (0.9, 1.0))
_FEW = 10  # records: too few to see a shape

Values = Float[np.ndarray, "orbits seeds"]
PerOrbit = Float[np.ndarray, " orbits"]


@dataclass(frozen=True)
class Difference:
    """How much better an orbit is than a worse one: nats, the half-width of a 95 % interval, and why not to trust it, if so."""

    worse: str
    nats: float
    error: float
    doubts: tuple[str, ...]

    @property
    def certain(self) -> bool:
        return not self.doubts

    def __str__(self) -> str:
        return f"{self.nats:+,.0f} ± {self.error:,.0f}" if self.error >= 0.5 else f"{self.nats:+,.0f}"


@dataclass(frozen=True, eq=False)
class Evidences:
    """The numbers that a verdict rests on.

    Attributes:
        names: of the orbits.
        values, stderrs: the evidence of each orbit and seed, and its Monte-Carlo error.
        remaining: for each orbit, the nats that training might still gain.
        more: the evidence of each orbit with MORE times the inducing points, for the first seed (None: not checked).
        settled: for each orbit, whether its evidence is that of exact inference, the same from every seed (None: of none).
        highs: for each orbit, the log marginal likelihood that its evidence cannot exclude (None: not known).
    """

    names: list[str]
    values: Values
    stderrs: Values
    remaining: PerOrbit
    more: PerOrbit | None = None
    settled: Bool[np.ndarray, " orbits"] | None = None
    highs: PerOrbit | None = None

    def order(self) -> list[int]:
        """Orbits from the best to the worst, by their mean over seeds."""
        return [int(i) for i in np.argsort(-self.values.mean(1), kind="stable")]

    def scatter(self) -> tuple[float, int]:
        """The standard deviation of a bound between restarts, pooled over orbits, and its degrees of freedom."""
        rows, columns = self.values.shape
        freedom = (rows - 1) * (columns - 1)
        if not freedom:
            return 0.0, 0
        v = self.values
        residual = v - v.mean(1, keepdims=True) - v.mean(0, keepdims=True) + v.mean()
        return sqrt(float((residual**2).sum()) / freedom), freedom

    def difference(self, a: int, b: int) -> Difference:
        """How much better a is than b, whose mean is no higher."""
        within = self.values[a] - self.values[b]
        seeds = len(within)
        nats = float(within.mean())
        pooled, freedom = self.scatter()
        own = float(within.std(ddof=1)) / sqrt(seeds) if seeds > 1 else 0.0
        monte_carlo = sqrt(float((self.stderrs[a] ** 2 + self.stderrs[b] ** 2).sum())) / seeds
        deviation = max(own, pooled * sqrt(2 / seeds), monte_carlo)
        width = float(t.ppf(_LEVEL, freedom)) if freedom else float(norm.ppf(_LEVEL))
        error = width * deviation
        doubts = self._doubts(a, b, nats, error)
        return Difference(self.names[b], nats, error, tuple(doubts))

    def _is_settled(self, i: int) -> bool:
        return self.settled is not None and bool(self.settled[i])

    def _doubts(self, a: int, b: int, nats: float, error: float) -> list[str]:
        doubts = []
        seeds = self.values.shape[1]
        if nats <= MIN_NATS:
            doubts.append(f"they differ by {nats:.1f} nats, which is next to nothing")
        elif nats <= error:
            doubts.append(f"they differ by {nats:,.0f} nats, within the ±{error:,.0f} that restarts and draws differ by")
        if seeds < 2 and not (self._is_settled(a) and self._is_settled(b)):
            doubts.append("one restart says nothing about the next: train from two seeds or more")
        winner, loser = float(self.remaining[a]), float(self.remaining[b])
        # Both gains are estimates, good to a factor of two: the loser's in full, half of the winner's.
        if isinf(loser) or max(nats - error, 0.0) < loser - 0.5 * min(winner, loser):
            amount = "" if isinf(loser) else f" by about {loser:,.0f} nats"
            doubts.append(f"{self.names[b]} was still rising{amount} when its budget ended: give it more steps")
        slack = 0.0 if self.highs is None or isinf(self.highs[b]) else float(self.highs[b] - self.values[b].mean())
        # A loose bound misleads training too, as its own top lies elsewhere. So its slack must be small against the difference.
        if not self._is_settled(b) and slack > _LOOSE * nats:
            doubts.append(
                f"the bound for {self.names[b]} may lie {slack:,.0f} nats below its evidence: use inference='exact', or more "
                "inducing points"
            )
        if self.more is not None:
            now, then = self.values[a, 0] - self.values[b, 0], self.more[a] - self.more[b]
            if then - now <= -0.5 * nats:
                doubts.append(
                    f"with {MORE} times the inducing points the difference goes from {now:+,.0f} to {then:+,.0f} nats: "
                    "use more of them"
                )
        return doubts


def leaders(table: Evidences) -> tuple[list[int], dict[int, Difference]]:
    """The best orbit with those that cannot be told from it, in order, and its difference to each of the others."""
    best, *others = table.order()
    against = {other: table.difference(best, other) for other in others}
    return [best, *(other for other in others if not against[other].certain)], against


def verdict(table: Evidences, plain: str | None = None) -> list[str]:
    """The result in a few sentences, the most important first. ``plain`` names the orbit without invariance, if any."""
    first, against = leaders(table)
    names = table.names
    beaten = [d for other, d in against.items() if other not in first]
    if len(first) == 1:
        sentences = [f"The data support {names[first[0]]}: {_over(beaten, plain)}."]
        if names[first[0]] == plain:
            sentences = [f"The data support no invariance among these: {_over(beaten, None)}."]
    else:
        tied = [names[i] for i in first]
        sentences = [f"Cannot tell {listed(tied)} apart{', so not whether any invariance helps' if plain in tied else ''}."]
        if beaten:
            sentences.append(f"What is certain of {tied[0]}: {_over(beaten, plain)}.")
        for other in first[1:]:
            sentences.append(f"{tied[0]} against {names[other]}: {'; '.join(against[other].doubts)}.")
    return sentences


def _over(beaten: list[Difference], plain: str | None) -> str:
    """ "+210 ± 12 nats over rotation, +290 ± 12 over no invariance"."""
    parts = []
    for i, difference in enumerate(beaten):
        name = "no invariance" if difference.worse == plain else difference.worse
        parts.append(f"{difference}{' nats' if i == 0 else ''} over {name}")
    return ", ".join(parts) or "there is nothing to compare it with"


def remaining_gain(history: Sequence[Record]) -> float:
    """The nats that the bound would still gain if training went on; infinite where the gains do not shrink."""
    if len(history) < _FEW:
        return inf
    steps = np.array([record["step"] for record in history], dtype=float)
    bounds = np.array([record["bound"] for record in history], dtype=float)
    fraction = steps / steps[-1]
    values = [bounds[(fraction >= low) & (fraction <= high)] for low, high in _WINDOWS]
    # The history of a run that screened its starts begins after the screening.
    first = values[0].mean() if len(values[0]) else bounds[0]
    middle, last = (v.mean() if len(v) else inf for v in values[1:])
    g1, g2 = middle - first, last - middle
    if g2 <= 0:
        return 0.0
    return inf if g2 >= g1 else float(g2**2 / (g1 - g2))
