"""As many digits as USPS has, and as large: 7,291 of MNIST, reduced to 16 x 16 pixels.

The models of :mod:`experiments.small_data`, sparse, with settings of their own, and the same with the Dirichlet likelihood, the
default. They are what :mod:`experiments.defaults` holds exact inference against on data of that size. The 10,000 digits to test
are all of MNIST's, where USPS has 2,007.

``python -m experiments reduced-mnist --device cuda``. The record was made by the library before exact inference: at a783b1a,
with this file, as it is at c17d3ad, put beside the experiments there.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments import harness, small_data
from experiments.harness import Claims, Records
from orbitgp.datasets import Dataset

FULL_SIZE = 7291
DIRICHLET = ", Dirichlet"
GAUSSIAN = {name: small_data.MODELS[name] for name in ("none", "affine", "affine, gradients")}
MODELS = GAUSSIAN | {name + DIRICHLET: {**model, "likelihood": "dirichlet"} for name, model in GAUSSIAN.items()}


@dataclass(frozen=True)
class ReducedMNIST(small_data.SmallData):
    """One model of some small digits, which the seed chooses."""

    num_train: int = FULL_SIZE

    def data(self) -> Dataset:
        data = super().data()
        return replace(data, name="MNIST, 16 x 16", x_train=reduced(data.x_train), x_test=reduced(data.x_test))


def reduced(images: Float[np.ndarray, "rows height width"]) -> Float[np.ndarray, "rows half_height half_width"]:
    """Means of two by two pixels, with a margin of two pixels around the image: 16 x 16 of them for 28 x 28."""
    wide = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    rows, height, width = wide.shape
    return wide.reshape(rows, height // 2, 2, width // 2, 2).mean((2, 4), dtype=images.dtype)


def plan(options: argparse.Namespace) -> list[ReducedMNIST]:
    """Every model with every seed."""
    settings = harness.QUICK | {"num_train": 150} if options.quick else small_data.FULL
    return [
        ReducedMNIST(name, seed=seed, **settings, **model) for seed in range(options.seeds) for name, model in MODELS.items()
    ]


def check(records: Records) -> Claims:
    """With each likelihood, the model that the bound picks has less error than none."""
    claims: Claims = {}
    for (likelihood,), group in harness.grouped(records, "likelihood").items():
        claims |= harness.picks_less_error(likelihood, harness.rows(group))
    return claims


EXPERIMENT = harness.Experiment("reduced_mnist", __doc__, plan, harness.table_with_learned, check, models=list(MODELS), seeds=1)
