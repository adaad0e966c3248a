"""Learned angles on embedded digits, each rotated by a random angle within ±A, against the profile of the bound.

``python -m experiments.rotated_digits --out results`` writes rotated_digits.json and rotated_digits.png;
``--device cuda --jobs 10`` runs several models at a time on one GPU, ``--quick`` a small version in a few minutes on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments import profiles
from experiments.runs import Claims
from orbitgp.datasets import digits, rotate
from orbitgp.orbits import Orbit, Rotation


@dataclass(frozen=True)
class RotatedDigits(profiles.Problem):
    """Digits rotated within ±``rotated`` degrees; the orbit is rotations within ± one angle."""

    rotated: float

    key = "degrees"
    unit = "°"
    grid: ClassVar[tuple[float, ...]] = (5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 150.0, 180.0)
    starts: ClassVar[tuple[float, ...]] = (5.0, 45.0, 150.0)

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        data = digits(seed=seed)
        x_train, _ = rotate(data.x_train, self.rotated, seed=2 * seed)
        x_test, _ = rotate(data.x_test, self.rotated, seed=2 * seed + 1)
        return x_train, data.y_train, x_test, data.y_test

    def orbit(self, value: float, learn: bool) -> Orbit:
        return Rotation(value, learn=learn)

    def title(self) -> str:
        return f"digits rotated within ±{self.rotated:.0f}°"


@dataclass(frozen=True)
class CoarselyRotatedDigits(RotatedDigits):
    """The same with a short grid, for two cores."""

    grid = (30.0, 90.0, 150.0)
    starts = (5.0, 150.0)


PROBLEMS = [RotatedDigits(rotated) for rotated in (0.0, 30.0, 60.0, 90.0)]


def main(arguments: list[str] | None = None) -> Claims:
    """Run the experiment, print its table, write the record and the picture."""
    return profiles.main("rotated_digits", __doc__.split("\n")[0], PROBLEMS, lambda: [CoarselyRotatedDigits(60.0)], arguments)


if __name__ == "__main__":
    main()
