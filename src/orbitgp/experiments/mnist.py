"""MNIST, ten classes, Gaussian likelihood on class indicators (figure 4 of the paper): error and evidence of learned orbits.

Five orbits, three seeds each: none, rotations, affine maps, local deformations (the paper's four) and the composition of the
last two. The seed decides inducing points, minibatches and orbit samples; the data are the standard split.

``python -m orbitgp.experiments.mnist --device cuda --jobs 5`` writes results/mnist/*.json and prints the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from orbitgp.datasets import Dataset, mnist
from orbitgp.experiments import runs

PAPER = {"none": (2.15, 0.03), "rotation": (2.08, 0.06), "affine": (1.35, 0.07), "deformation": (1.47, 0.05)}


@dataclass(frozen=True)
class MNIST(runs.Run):
    """One model of MNIST, or of its first ``num_train`` digits."""

    experiment = "mnist"

    num_train: int = 60_000
    num_test: int = 10_000

    def data(self) -> Dataset:
        data = mnist()
        train, test = slice(self.num_train), slice(self.num_test)
        return replace(
            data,
            x_train=data.x_train[train],
            y_train=data.y_train[train],
            x_test=data.x_test[test],
            y_test=data.y_test[test],
        )


ORBITS = {
    "none": "none",
    "rotation": "rotation(10)",
    "affine": "affine",
    "deformation": "deformation",
    "affine * deformation": "affine*deformation",
}


def all_runs(seeds: int = 3) -> list[MNIST]:
    """Every orbit with every seed."""
    return [MNIST(name, orbit, seed=seed, **FULL) for seed in range(seeds) for name, orbit in ORBITS.items()]


FULL: dict[str, Any] = {"num_inducing": 2000, "max_steps": 800, "options": {"posterior_samples": 16}}
