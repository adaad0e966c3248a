"""Odd against even MNIST digits, each rotated within ±A (figure 3 of the paper): the learned angle against the profile.

The likelihood is the logistic one, by Pólya-Gamma variables. The digits are the first 6,000 of the training set and all
10,000 of the test set. The bound need not peak at A: what is asked of the learner is to find its top, from every start.

``python -m experiments.odd_even --device cuda --jobs 10 --seeds 1`` writes odd_even.json and odd_even.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from experiments import profiles
from experiments.runs import Claims
from orbitgp.datasets import Dataset, digits, mnist, rotate
from orbitgp.orbits import Orbit, Rotation

FULL = {"num_inducing": 500, "max_steps": 400, "batch_size": 800, "num_samples": 32}
QUICK = {"num_inducing": 60, "max_steps": 130, "batch_size": 200, "num_samples": 8}
FULL_SIZE = 6000
APART = 8.0  # degrees between a learned angle and that of the highest evidence
BEHIND = 10.0  # degrees by which a learned angle may fall short of A
HALF_TURN_AT_LEAST = 150.0  # what is asked where A = 180: the paper's angles stay below it


@dataclass(frozen=True)
class OddEven(profiles.Problem):
    """Digits rotated within ±``rotated`` degrees, odd (1) or even (0)."""

    rotated: float
    num_train: int = FULL_SIZE
    num_test: int = 10_000

    key = "degrees"
    unit = "°"
    grid: ClassVar[tuple[float, ...]] = (10.0, 20.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 150.0, 180.0)
    starts: ClassVar[tuple[float, ...]] = (5.0, 45.0, 120.0, 175.0)
    likelihood = "bernoulli"

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.rotated_parity(mnist(), seed)

    def rotated_parity(self, data: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Some of these digits, each turned by an angle of its own, with 1 for odd and 0 for even."""
        x_train, _ = rotate(data.x_train[: self.num_train], self.rotated, seed=2 * seed)
        x_test, _ = rotate(data.x_test[: self.num_test], self.rotated, seed=2 * seed + 1)
        return x_train, data.y_train[: self.num_train] % 2, x_test, data.y_test[: self.num_test] % 2

    def orbit(self, value: float, learn: bool) -> Orbit:
        return Rotation(value, learn=learn)

    def title(self) -> str:
        return f"odd or even, rotated within ±{self.rotated:.0f}°"


@dataclass(frozen=True)
class FewOddEven(OddEven):
    """The same of embedded digits of 8x8 pixels, with a short grid, for two cores."""

    num_train: int = 500
    num_test: int = 450

    grid = (30.0, 90.0)
    starts = (5.0, 120.0)

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self.rotated_parity(digits(), seed)


PROBLEMS = [OddEven(rotated) for rotated in (0.0, 45.0, 90.0, 180.0)]


def check(summaries: Sequence[dict[str, Any]]) -> Claims:
    """The top of the profile from every start; angles that are not too small; better than no orbit in error and evidence."""
    claims = profiles.check(summaries)
    for s in summaries:
        rotated = s["problem"]["rotated"]
        if s["problem"]["num_train"] >= FULL_SIZE:  # fewer digits say too little about the place of the top
            # The grid is coarse: where a learned model is above all of it, that model is the top.
            best = min(s["learned"], key=itemgetter("behind"))
            place = best["value"] if best["behind"] < 0 else s["top"]
            claims[f"{s['title']}: every learned angle is within {APART:g}° of the top's"] = all(
                abs(r["value"] - place) <= APART for r in s["learned"]
            )
            if rotated > 0:
                least = HALF_TURN_AT_LEAST if rotated == 180 else rotated - BEHIND
                claims[f"{s['title']}: every learned angle is at least {least:g}°"] = all(
                    r["value"] >= least for r in s["learned"]
                )
        if rotated >= 45:
            claims[f"{s['title']}: learned beats no orbit in error and evidence"] = all(
                seed["gain"] > 0 and seed["error_learned"] < seed["error_none"] for seed in s["seeds"]
            )
    return claims


def main(arguments: list[str] | None = None) -> Claims:
    """Run the experiment, print its table, write the record and the picture."""
    description = __doc__.split("\n")[0]
    return profiles.main(
        "odd_even",
        description,
        PROBLEMS,
        lambda: [FewOddEven(90.0)],
        arguments,
        check,
        full_settings=FULL,
        quick_settings=QUICK,
    )


if __name__ == "__main__":
    main()
