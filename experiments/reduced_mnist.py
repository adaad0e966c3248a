"""As many digits as USPS has, and as large: 7,291 of MNIST, reduced to 16 x 16 pixels.

The models of :mod:`experiments.small_data`, sparse, with settings of their own, and the same with the Dirichlet
likelihood, the default. They are what :mod:`experiments.defaults` holds exact inference against on data of that size.

All other digits of MNIST are tested: its own 10,000 test digits, and the 52,709 training digits that no model of the
seed sees. An error of 0.9 % of 10,000 digits is known to 0.1 %, which is more than the models with gradients differ by.

``python -m experiments reduced-mnist --device cuda``. The record was made by the library before exact inference: at
a783b1a, with this file put beside the experiments there.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from experiments import harness, small_data
from experiments.harness import Claims, Record, Records
from orbitgp.datasets import Dataset, mnist

FULL_SIZE = 7291
TEST_DIGITS = 10_000  # of MNIST: the first of those that are tested
OTHERS = 70_000 - FULL_SIZE
DIRICHLET = ", Dirichlet"
GAUSSIAN = {name: small_data.MODELS[name] for name in ("none", "affine", "affine, gradients")}
MODELS = GAUSSIAN | {name + DIRICHLET: {**model, "likelihood": "dirichlet"} for name, model in GAUSSIAN.items()}


@dataclass(frozen=True)
class ReducedMNIST(small_data.SmallData):
    """One model of some small digits, which the seed chooses."""

    num_train: int = FULL_SIZE
    num_test: int = OTHERS

    def data(self) -> Dataset:
        data = mnist()
        order = np.random.default_rng(self.seed).permutation(len(data.y_train))  # as in small_data
        train, others = np.split(order, [self.num_train])
        x, y = reduced(data.x_train), data.y_train
        return replace(
            data,
            name="MNIST, 16 x 16",
            x_train=x[train],
            y_train=y[train],
            x_test=np.concatenate([reduced(data.x_test), x[others]])[: self.num_test],
            y_test=np.concatenate([data.y_test, y[others]])[: self.num_test],
        )

    def scores(self, probs: np.ndarray, labels: np.ndarray) -> Record:
        return super().scores(probs, labels) | of_test_digits(probs, labels)


def of_test_digits(probs: np.ndarray, labels: np.ndarray) -> Record:
    """The error of MNIST's own test digits, which come first."""
    wrong = probs.argmax(1) != labels
    return {"error_of_test_digits": float(wrong[:TEST_DIGITS].mean())}


def own_error(group: list[Record]) -> str:
    """The error of MNIST's own test digits in words, the mean of all seeds."""
    return f"{100 * np.mean([record['metrics']['error_of_test_digits'] for record in group]):.2f} %"


def reduced(images: Float[np.ndarray, "rows height width"]) -> Float[np.ndarray, "rows half_height half_width"]:
    """Means of two by two pixels, with a margin of two pixels around the image: 16 x 16 of them for 28 x 28."""
    wide = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    rows, height, width = wide.shape
    return wide.reshape(rows, height // 2, 2, width // 2, 2).mean((2, 4), dtype=images.dtype)


def plan(options: argparse.Namespace) -> list[ReducedMNIST]:
    """Every model with every seed."""
    settings = harness.QUICK | {"num_train": 150} if options.quick else small_data.FULL
    return [
        ReducedMNIST(name, seed=seed, **settings, **model)
        for seed in range(options.seeds)
        for name, model in MODELS.items()
    ]


def check(records: Records) -> Claims:
    """With each likelihood, the model that the bound picks has less error than none."""
    claims: Claims = {}
    for (likelihood,), group in harness.grouped(records, "likelihood").items():
        claims |= harness.picks_less_error(likelihood, harness.rows(group))
    return claims


def table(records: Records) -> str:
    """Errors and bounds with what was learned."""
    own = {name: own_error(group) for (name,), group in harness.grouped(records, "model").items()}
    return harness.table_with_learned(records, {"of MNIST's test digits": own})


EXPERIMENT = harness.Experiment("reduced_mnist", __doc__, plan, table, check, models=list(MODELS), seeds=1)
