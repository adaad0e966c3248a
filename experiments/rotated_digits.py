"""Learned angles on embedded digits, each rotated by a random angle within ±A, against the profile of the bound.

``python -m experiments rotated-digits --device cuda --jobs 10 --seeds 1`` runs several models at a time on one GPU, ``--quick``
a small version in a few minutes on two cores.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import ClassVar

from experiments import harness, profiles
from orbitgp.datasets import Dataset, digits, rotate


@dataclass(frozen=True)
class RotatedDigits(profiles.Profiled):
    """Digits rotated within ±``rotated`` degrees; the orbit is rotations within ± one angle."""

    experiment = "rotated_digits"
    key = "degrees"
    unit = "°"
    grid: ClassVar[tuple[float, ...]] = (5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 150.0, 180.0)
    starts: ClassVar[tuple[float, ...]] = (5.0, 45.0, 150.0)

    rotated: float = 0.0

    def data(self) -> Dataset:
        data = digits(seed=self.seed)
        x_train, _ = rotate(data.x_train, self.rotated, seed=2 * self.seed)
        x_test, _ = rotate(data.x_test, self.rotated, seed=2 * self.seed + 1)
        return replace(data, x_train=x_train, x_test=x_test)

    def at(self, value: float, learn: bool) -> str:
        return f"rotation({value}, learn={learn})"

    def title(self) -> str:
        return f"digits rotated within ±{self.rotated:.0f}°"


@dataclass(frozen=True)
class CoarselyRotatedDigits(RotatedDigits):
    """The same with a short grid, for two cores."""

    grid = (30.0, 90.0, 150.0)
    starts = (5.0, 150.0)
    short = profiles.SHORT


def plan(options: argparse.Namespace) -> list[profiles.Profiled]:
    """The profile of each angle of the data."""
    if options.quick:
        return profiles.plan([CoarselyRotatedDigits(rotated=60.0)], options.seeds, **profiles.QUICK)
    problems = [RotatedDigits(rotated=rotated, num_inducing=options.inducing) for rotated in (0.0, 30.0, 60.0, 90.0)]
    return profiles.plan(problems, options.seeds)


EXPERIMENT = harness.Experiment(
    "rotated_digits",
    __doc__,
    plan,
    profiles.table,
    profiles.check,
    profiles.figure,
    options={"--inducing": {"type": int, "default": 300, "help": "inducing points (default: 300)"}},
)
