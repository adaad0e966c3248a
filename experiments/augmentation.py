"""Data augmentation against invariance: the same transformations, used in the one way and in the other.

5,000 digits of MNIST. A plain Gaussian process of the digits; the same of ten randomly transformed copies of each instead; a
process that is insensitive to the same transformations; and one that learns how far they may go. The paper argues for the last
two and measures none. Copies count every label ten times: their bound is one for 50,000 targets, most of which nobody measured,
and says nothing beside the bounds for 5,000.

``python -m experiments augmentation --device cuda --jobs 4``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from experiments import harness
from experiments.harness import Claims, Records, Settings
from experiments.mnist import MNIST
from orbitgp.datasets import Dataset
from orbitgp.orbits.parse import make_orbit

FIXED = "affine(frozen=['angle', 'scale_x', 'scale_y', 'shear', 'shift_x', 'shift_y'])"
COPIES = 10
MODELS: dict[str, Settings] = {
    "none": {"orbit": "none"},
    "augmented copies": {"orbit": "none", "copies": COPIES},
    "invariance, fixed": {"orbit": FIXED},
    "invariance, learned": {"orbit": "affine"},
}

QUICK: Settings = harness.QUICK | {"num_train": 300, "num_test": 1000, "num_inducing": 150}


@dataclass(frozen=True)
class Augmentation(MNIST):
    """One model of some digits, or of randomly transformed copies of them."""

    num_train: int = 5000
    copies: int = 0

    def data(self) -> Dataset:
        data = super().data()
        if not self.copies:
            return data
        images = torch.from_numpy(np.ascontiguousarray(data.x_train))
        orbit, generator = make_orbit(FIXED), torch.Generator().manual_seed(self.seed)
        u = torch.rand(len(images), self.copies, orbit.draws_for(images.shape[1:]), generator=generator)
        with torch.no_grad():
            copies = orbit.transform(images, u).flatten(0, 1).numpy()
        return replace(data, x_train=copies, y_train=np.repeat(data.y_train, self.copies))


def all_runs(seeds: int = 3, models: Iterable[str] = MODELS, **settings: Any) -> list[Augmentation]:
    """Every model with every seed."""
    return [Augmentation(name, seed=seed, **settings, **MODELS[name]) for seed in range(seeds) for name in models]


def check(records: Records) -> Claims:
    """Invariance helps as much as copies do, by a bound that compares; that of the copies does not."""
    found = {row.model: row for row in harness.rows(records)}
    if len(found) < len(MODELS):
        return {}
    none, copies, fixed, learned = (found[name] for name in MODELS)
    wrong = harness.disagreements([none, fixed, learned])
    tolerance = 2 * (fixed.error_stderr**2 + copies.error_stderr**2) ** 0.5
    others = (none, fixed, learned)
    best = min(others, key=attrgetter("error"))
    better = copies.error < best.error - 2 * (copies.error_stderr**2 + best.error_stderr**2) ** 0.5
    misleads = copies.evidence > max(row.evidence for row in others) and not better
    return {
        "fixed and learned invariance: less error than none": max(fixed.error, learned.error) < none.error,
        "fixed invariance: no more error than copies by the same transformations": fixed.error <= copies.error + tolerance,
        "learned invariance: more evidence than fixed": learned.evidence > fixed.evidence,
        "without copies, the bound ranks the models as the error does": not wrong,
        "with copies, the bound is the highest of all, and the error not clearly the lowest": misleads,
    }


def table(records: Records) -> str:
    """Errors and bounds, with the number of targets that each bound is for."""
    found = harness.rows(records)
    targets = {row.model: f"{row.train:,}" for row in found}
    return harness.table(found, {"targets": targets})


def plan(options: argparse.Namespace) -> list[Augmentation]:
    """The models that were asked for."""
    return all_runs(options.seeds, options.models, **harness.chosen(options, harness.FULL, QUICK))


EXPERIMENT = harness.Experiment(
    "augmentation", __doc__, plan, table, check, models=list(MODELS), options=harness.model_options(MODELS)
)
