"""Data augmentation against invariance: the same transformations, used in the one way and in the other.

800 digits of MNIST, as many as leave inference exact for ten copies of each on two cores, and models as a user gets
them without options. A plain Gaussian process of the digits; the same of ten randomly transformed copies of each
instead; a process that is insensitive to the same transformations; and one that learns how far they may go. The paper
argues for the last two and measures none. Copies count every label ten times: their evidence is one for 8,000 targets,
most of which nobody measured, and says nothing beside that for 800.

``python -m experiments augmentation --jobs 2``
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
import torch

from experiments import harness
from experiments.default_fit import DefaultFit
from experiments.harness import Claims, Records, Settings
from orbitgp.datasets import Dataset, mnist
from orbitgp.orbits.parse import make_orbit

FIXED = "affine(frozen=['angle', 'scale_x', 'scale_y', 'shear', 'shift_x', 'shift_y'])"
COPIES = 10
MODELS: dict[str, Settings] = {
    "none": {"orbit": "none"},
    "augmented copies": {"orbit": "none", "copies": COPIES},
    "invariance, fixed": {"orbit": FIXED},
    "invariance, learned": {"orbit": "affine"},
}
QUICK: Settings = {"num_train": 200, "num_test": 1000, "max_seconds": 4.0}


@dataclass(frozen=True)
class Augmentation(DefaultFit):
    """One model of some digits, or of randomly transformed copies of them."""

    num_train: int = 800
    num_test: int = 10_000
    copies: int = 0

    def name(self) -> str:
        return harness.slug(self.model, self.seed)

    def data(self) -> Dataset:
        data = harness.cut(mnist(), slice(self.num_train), slice(self.num_test))
        if not self.copies:
            return data
        images = torch.from_numpy(np.ascontiguousarray(data.x_train))
        orbit, generator = make_orbit(FIXED), torch.Generator().manual_seed(self.seed)
        u = torch.rand(len(images), self.copies, orbit.draws_for(images.shape[1:]), generator=generator)
        with torch.no_grad():
            copies = orbit.transform(images, u).flatten(0, 1).numpy()
        return replace(data, x_train=copies, y_train=np.repeat(data.y_train, self.copies))


def check(records: Records) -> Claims:
    """Invariance helps at least as much as copies do, and its evidence says how far it should go."""
    found = {row.model: row for row in harness.rows(records)}
    if len(found) < len(MODELS):
        return {}
    none, copies, fixed, learned = (found[name] for name in MODELS)
    wrong = harness.disagreements([none, fixed, learned])
    tolerance = 2 * (fixed.error_stderr**2 + copies.error_stderr**2) ** 0.5
    return {
        "fixed and learned invariance: less error than none": max(fixed.error, learned.error) < none.error,
        "fixed invariance: no more error than copies by the same transformations": fixed.error
        <= copies.error + tolerance,
        "learned invariance: less error than copies": learned.error < copies.error,
        "learned invariance: more evidence than fixed": learned.evidence > fixed.evidence,
        "without copies, the evidence ranks the models as the error does": not wrong,
    }


def table(records: Records) -> str:
    """Errors and evidence, with the number of targets that each evidence is for."""
    found = harness.rows(records)
    targets = {row.model: f"{row.train:,}" for row in found}
    return harness.table(found, {"targets": targets, "learned": harness.learned(found)})


def plan(options: argparse.Namespace) -> list[Augmentation]:
    """The models that were asked for."""
    settings = QUICK if options.quick else {}
    return [
        Augmentation(name, seed=seed, **settings, **MODELS[name])
        for seed in range(options.seeds)
        for name in options.models
    ]


EXPERIMENT = harness.Experiment(
    "augmentation",
    __doc__,
    plan,
    table,
    check,
    models=list(MODELS),
    seeds=1,
    options=harness.some_models(MODELS),
)
