"""Odd against even MNIST digits, each rotated within ±A (figure 3 of the paper): the learned angle against the profile.

The likelihood is the logistic one, by Pólya-Gamma variables. The digits are the first 6,000 of the training set and all
10,000 of the test set. The bound need not peak at A: what is asked of the learner is to find its top, from every start.

``python -m experiments odd-even --device cuda --jobs 10 --seeds 1``
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments import harness, profiles
from experiments.harness import Claims, Records
from orbitgp.datasets import Dataset, digits, mnist, rotate

FULL = {"num_inducing": 500, "max_steps": 400, "batch_size": 800}
QUICK = {"num_inducing": 60, "max_steps": 130, "batch_size": 200, "num_samples": 8}
FULL_SIZE = 6000
APART = 8.0  # degrees between a learned angle and that of the highest evidence
BEHIND = 10.0  # degrees by which a learned angle may fall short of A
HALF_TURN_AT_LEAST = 150.0  # what is asked where A = 180: the paper's angles stay below it


@dataclass(frozen=True)
class OddEven(profiles.Profiled):
    """Digits rotated within ±``rotated`` degrees, odd (1) or even (0)."""

    experiment = "odd_even"
    key = "degrees"
    unit = "°"
    grid: ClassVar[tuple[float, ...]] = (10.0, 20.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 150.0, 180.0)
    starts: ClassVar[tuple[float, ...]] = (5.0, 45.0, 120.0, 175.0)

    likelihood: str = "bernoulli"
    rotated: float = 0.0
    num_train: int = FULL_SIZE
    num_test: int = 10_000

    def data(self) -> Dataset:
        data = harness.cut(self.digits(), slice(self.num_train), slice(self.num_test))
        x_train, _ = rotate(data.x_train, self.rotated, seed=2 * self.seed)
        x_test, _ = rotate(data.x_test, self.rotated, seed=2 * self.seed + 1)
        return replace(data, x_train=x_train, y_train=data.y_train % 2, x_test=x_test, y_test=data.y_test % 2)

    def digits(self) -> Dataset:
        """Upright digits with their ten labels."""
        return mnist()

    def at(self, value: float, learn: bool) -> str:
        return f"rotation({value}, learn={learn})"

    def title(self) -> str:
        return f"odd or even, rotated within ±{self.rotated:.0f}°"


@dataclass(frozen=True)
class FewOddEven(OddEven):
    """The same of embedded digits of 8x8 pixels, with a short grid, for two cores."""

    grid = (30.0, 90.0)
    starts = (5.0, 120.0)
    short = profiles.SHORT

    num_train: int = 500
    num_test: int = 450

    def digits(self) -> Dataset:
        return digits()


def plan(options: argparse.Namespace) -> list[profiles.Profiled]:
    """The profile of each angle of the data."""
    if options.quick:
        return profiles.plan([FewOddEven(rotated=90.0)], options.seeds, **QUICK)
    return profiles.plan([OddEven(rotated=rotated) for rotated in (0.0, 45.0, 90.0, 180.0)], options.seeds, **FULL)


def check(records: Records) -> Claims:
    """The top of the profile from every start; angles that are not too small; better than no orbit in error and evidence."""
    claims = profiles.check(records)
    for s in profiles.summaries(records):
        rotated, angles = s.settings["rotated"], [r.value for r in s.learned]
        if s.settings["num_train"] >= FULL_SIZE:  # fewer digits say too little about the place of the top
            # The grid is coarse: where a learned model is above all of it, that model is the top.
            best = min(s.learned, key=lambda r: r.behind)
            place = best.value if best.behind < 0 else s.top
            within = all(abs(angle - place) <= APART for angle in angles)
            claims[f"{s.title}: every learned angle is within {APART:g}° of the top's"] = within
            if rotated > 0:
                least = HALF_TURN_AT_LEAST if rotated == 180 else rotated - BEHIND
                claims[f"{s.title}: every learned angle is at least {least:g}°"] = min(angles) >= least
        if rotated >= 45:
            fewer = all(a < b for a, b in zip(s.errors_learned, s.errors_none, strict=True))
            claims[f"{s.title}: learned beats no orbit in error and evidence"] = min(s.gains) > 0 and fewer
    return claims


EXPERIMENT = harness.Experiment("odd_even", __doc__, plan, profiles.table, check, profiles.figure)
