"""Which orbit is best, and how certain that is: intervals that overlap or do not.

The log evidence of each orbit, at its best hyperparameters, lies in an interval (:mod:`orbitgp.comparison.refine`). The
orbit with the highest value is better than another for certain if the lower end of its interval lies above the upper
end of the other's, and if the values differ by more than chance would make them (:mod:`orbitgp.report.finding`). Below
that, the data hardly prefer either orbit, however exactly the evidence is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

from orbitgp.orbits.description import listed
from orbitgp.report.finding import nats_needed


@dataclass(frozen=True)
class Standing:
    """What is known of the log evidence of one orbit, in nats."""

    name: str
    value: float  # the evidence of its best model
    low: float  # what the log evidence at the best hyperparameters lies between
    high: float  # or infinite
    reason: str = ""  # why the interval is as wide as it is, in a few words
    needs: str = ""  # what would narrow it; empty where nothing would
    converged: bool = True  # whether the training of its best model came to its end
    learned: int = 0  # parameters of the orbit
    tried: int = 1  # orbits that were compared with none

    @property
    def width(self) -> float:
        return self.high - self.low

    def between(self) -> str:
        """The interval in words, with the reason."""
        ends = f"at or above {self.low:,.0f}" if isinf(self.high) else f"between {self.low:,.0f} and {self.high:,.0f}"
        return f"{ends} ({self.reason})" if self.reason else ends


@dataclass(frozen=True)
class Difference:
    """How much better an orbit is than another whose value is no higher, in nats."""

    better: Standing
    worse: Standing

    @property
    def nats(self) -> float:
        return self.better.value - self.worse.value

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most that the difference may be."""
        return self.better.low - self.worse.high, self.better.high - self.worse.low

    @property
    def needed(self) -> float:
        """Nats that chance would give the better orbit."""
        return nats_needed(self.better.learned, self.better.tried)

    @property
    def certain(self) -> bool:
        return self.nats > self.needed and self.ends[0] > 0

    def __str__(self) -> str:
        low, high = (f"{end:+z,.0f}" for end in self.ends)
        if low == high:
            return f"{self.nats:+,.0f}"
        return f"{self.nats:+,.0f} ({'at least ' + low if isinf(self.ends[1]) else f'{low} to {high}'})"

    def doubt(self) -> str:
        """Why it is not certain, and what would be needed."""
        if self.nats <= self.needed and max(self.better.width, self.worse.width) <= self.needed:
            return f"they differ by {self.nats:.1f} nats, and chance alone may give {self.needed:.1f}"
        sides = sorted((self.better, self.worse), key=lambda side: -side.width)
        wide = [side for side in sides if side.width > 0.1 * sides[0].width or isinf(side.width)]
        said = [f"the evidence of {side.name} lies {side.between()}" for side in wide]
        needed = [f"{side.needs} for {side.name}" for side in wide if side.needs]
        return " and ".join(said) + (f"; to tell would take {listed(needed)}" if needed else "")


def leaders(standings: Sequence[Standing]) -> tuple[list[Standing], dict[str, Difference]]:
    """The best orbit with those that cannot be told from it, in order, and its difference to each other one by name."""
    best, *others = sorted(standings, key=lambda standing: -standing.value)
    against = {other.name: Difference(best, other) for other in others}
    return [best, *(other for other in others if not against[other.name].certain)], against


def verdict(standings: Sequence[Standing], plain: str | None = None) -> list[str]:
    """The result in a few sentences, the most important first. ``plain`` names the orbit without invariance, if any."""
    first, against = leaders(standings)
    names = [standing.name for standing in first]
    beaten = [difference for name, difference in against.items() if name not in names]
    doubts = [f"{names[0]} against {name}: {against[name].doubt()}." for name in names[1:]]
    if not first[0].converged:
        if len(first) == 1:  # more training would only take it further
            certain = f"{names[0]} has not converged, but it is ahead for certain: {_over(beaten, plain)}."
            return [certain, "Let it train for longer before you use what it has learned."]
        ahead = [f"So far it is ahead: {_over(beaten, plain)}."] if beaten else []
        return [f"{names[0]} has not converged, so this is no verdict yet: let it train for longer.", *ahead, *doubts]
    if len(first) == 1:
        if names[0] == plain:
            return [f"The data support no invariance among these: {_over(beaten, None)}."]
        return [f"The data support {names[0]}: {_over(beaten, plain)}."]
    doubt = ", so not whether any invariance helps" if plain in names else ""
    sentences = [f"Cannot tell {listed(names)} apart{doubt}."]
    if beaten:
        sentences.append(f"What is certain of {names[0]}: {_over(beaten, plain)}.")
    return sentences + doubts


def _over(beaten: Sequence[Difference], plain: str | None) -> str:
    """ "+210 (+180 to +240) nats over rotation, +290 over no invariance"."""
    parts = []
    for i, difference in enumerate(beaten):
        name = "no invariance" if difference.worse.name == plain else difference.worse.name
        parts.append(f"{difference}{' nats' if i == 0 else ''} over {name}")
    return ", ".join(parts) or "there is nothing to compare it with"
