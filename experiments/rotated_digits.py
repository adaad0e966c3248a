"""Learned angles on embedded digits, each rotated by a random angle within ±A, against the exact profile.

``python -m experiments rotated-digits --device cuda --jobs 10`` runs several models at a time on one GPU, ``--quick`` a
small version in a minute or two on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments import harness, profiles
from experiments.harness import Record
from experiments.profiles import Profile
from orbitgp.datasets import Dataset, digits

ROTATED = (0.0, 30.0, 60.0, 90.0)
ANGLES = (10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 150.0, 180.0)
BETWEEN = (70.0, 80.0, 95.0, 100.0, 105.0, 110.0)  # where digits that were not rotated have several tops
STARTS = (5.0, 45.0, 150.0)


@dataclass(frozen=True)
class RotatedDigits(profiles.Profiled):
    """Digits rotated within ±``rotated`` degrees; the orbit is rotations within ± one angle."""

    key = "degrees"
    unit = "°"

    rotated: float = 0.0
    num_train: int | None = None  # all
    num_test: int | None = None

    def data(self) -> Dataset:
        data = harness.turned(digits(seed=self.seed), self.rotated, self.seed)
        return harness.cut(data, slice(self.num_train), slice(self.num_test))

    def at(self, value: float, learn: bool) -> str:
        return f"rotation({value}, learn={learn})"

    def title(self) -> str:
        return f"digits rotated within ±{self.rotated:.0f}°"


def is_exact_within_30(record: Record) -> bool:
    """Whether it belongs to the exact profile of digits within ±30°."""
    return record["settings"]["rotated"] == 30.0 and profiles.inference_of(record) == "exact"


FULL = [Profile(RotatedDigits(rotated=a), sorted(ANGLES + BETWEEN) if a == 0 else ANGLES, STARTS) for a in ROTATED]
# The first 60 digits are of nine classes.
QUICK = [
    Profile(
        RotatedDigits(rotated=60.0, num_train=100, num_test=150, max_seconds=5.0), (30.0, 90.0, 150.0), (5.0, 150.0)
    )
]

EXPERIMENT = profiles.experiment("rotated_digits", __doc__, FULL, QUICK)
