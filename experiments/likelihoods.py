"""Likelihoods for ten classes, compared by test error, NLL, Brier score and calibration.

Every likelihood learns from the same digits, without an orbit and with learned rotations, as a user gets it without
options: inference is exact for so few. It predicts the same test digits. The evidence is given for each datum; for
stick-breaking it is a bound. It compares rows of one likelihood, never two likelihoods. Scores are means over splits.
Behind NLL and ECE is the standard error of the mean.

Few predictions in a bin make even perfect probabilities look uncalibrated. "Chance" is the ECE of labels drawn from the
predicted probabilities. "Pooled" is the ECE of the predictions of all splits together, which suffers less. Splits 0 to
2 were used to choose the concentrations of the Dirichlet likelihood, so the default splits start at 3.

``python -m experiments likelihoods``; ``--quick`` is one small split. ``--data mnist --device cuda`` takes 5,000 MNIST
digits.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from experiments import harness
from experiments.default_fit import DefaultFit
from experiments.harness import Record, Records, Settings
from experiments.stick_breaking import StickBreaking
from orbitgp import InvariantGPClassifier, metrics
from orbitgp.datasets import Dataset, digits, mnist

NAMES = ("gaussian", "dirichlet", "stick-breaking")
OWN = {"stick-breaking": StickBreaking(10)}
ORBITS = {"none": "none", "rotation": "rotation(15)"}
MNIST_DIGITS = 5000


@dataclass(frozen=True)
class Likelihoods(DefaultFit):
    """One likelihood with one orbit on one split; ``model`` is the orbit's name."""

    source: str = "digits"
    num_train: int | None = None

    def name(self) -> str:
        return harness.slug(self.source, self.likelihood, self.model, self.seed)

    def data(self) -> Dataset:
        """A split of the embedded digits, or the first MNIST digits after ``seed`` times as many."""
        if self.source == "digits":
            return harness.cut(digits(seed=self.seed), slice(self.num_train))
        count = self.num_train or MNIST_DIGITS
        return harness.cut(mnist(), slice(self.seed * count, (self.seed + 1) * count))

    def estimator(self, device: str) -> InvariantGPClassifier:
        return super().estimator(device).set_params(likelihood=OWN.get(self.likelihood, self.likelihood))

    def scores(self, probs: np.ndarray, labels: np.ndarray) -> Record:
        calibration = metrics.calibration(probs, labels).tolist()
        return super().scores(probs, labels) | {"ece_chance": _ece_of_the_calibrated(probs), "calibration": calibration}


def _ece_of_the_calibrated(probs: np.ndarray, draws: int = 50) -> float:
    """The mean ECE of labels that are drawn from these probabilities."""
    uniform = np.random.default_rng(0).random((draws, len(probs), 1))
    labels = np.minimum((probs.cumsum(1) < uniform).sum(2), probs.shape[1] - 1)
    return float(np.mean([metrics.ece(probs, drawn) for drawn in labels]))


def plan(options: argparse.Namespace) -> list[Likelihoods]:
    """Every likelihood with every orbit, split by split."""
    settings: Settings = {"num_train": MNIST_DIGITS} if options.data == "mnist" else {}
    if options.quick:
        settings = {"num_train": 100, "max_seconds": 4.0}
    return [
        Likelihoods(orbit, ORBITS[orbit], likelihood=likelihood, seed=seed, source=options.data, **settings)
        for seed in range(options.first_seed, options.first_seed + options.seeds)
        for orbit in reversed(options.orbits)
        for likelihood in options.names
    ]


def pooled_ece(group: Records) -> float:
    """The ECE of the predictions of all these records together."""
    pooled = np.sum([r["metrics"]["calibration"] for r in group], 0)
    return float(np.abs(pooled).sum() / sum(r["data"]["test"] for r in group))


def table(records: Records) -> str:
    """One row for each orbit and likelihood: means over splits, and their standard errors."""
    groups = harness.grouped(records, "source", "model", "likelihood")
    cells = []
    for source, orbit, likelihood in sorted(groups, key=lambda key: (*key[:2], NAMES.index(key[2]))):
        group = groups[source, orbit, likelihood]
        error, brier, chance = (
            np.mean([r["metrics"][name] for r in group]) for name in ("error_rate", "brier", "ece_chance")
        )
        several = "{:.4f} ± {:.4f}" if len(group) > 1 else "{:.4f}"
        nll, ece = (several.format(*harness.mean([r["metrics"][name] for r in group])) for name in ("nll", "ece"))
        evidence = np.mean([r["evidence"]["value"] / r["data"]["train"] for r in group])
        angle = np.mean([r["orbit"].get("degrees", 0.0) for r in group])
        seconds = np.mean([r["seconds"]["fit"] for r in group])
        scores = [
            f"{error:.2%}",
            nll,
            f"{brier:.4f}",
            ece,
            f"{chance:.4f}",
            f"{pooled_ece(group):.4f}",
            f"{evidence:.3f}",
        ]
        cells.append([source, likelihood, orbit, *scores, f"±{angle:.0f}°" if angle else "", f"{seconds:.0f}"])
    scores = ["error", "NLL", "Brier", "ECE", "chance", "pooled", "evidence a datum"]
    return harness.markdown(["data", "likelihood", "orbit", *scores, "angle", "seconds"], cells)


OPTIONS: dict[str, Settings] = {
    "--data": {"choices": ["digits", "mnist"], "default": "digits"},
    "--names": {"nargs": "+", "choices": NAMES, "default": NAMES, "help": "likelihoods (default: all)"},
    "--orbits": {"nargs": "+", "choices": list(ORBITS), "default": list(ORBITS)},
    "--first-seed": {"type": int, "default": 3, "help": "the first split (default: 3)"},
}
EXPERIMENT = harness.Experiment("likelihoods", __doc__, plan, table, seeds=4, options=OPTIONS)
