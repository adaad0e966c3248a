"""Likelihoods for ten classes, compared on what they are for: test error, NLL, Brier score and calibration.

Every likelihood is trained in the same way on the same digits, with and without an orbit of learned rotations, and predicts the
same test digits. The bound is given for each datum; it compares rows of one likelihood, never two likelihoods. Splits 0 to 2
were looked at when the Dirichlet likelihood's concentration was chosen, so by default those from 3 on are used.

``python -m orbitgp.experiments.likelihoods --out results`` writes likelihoods.json and prints the table, in about two hours on
one core; ``--quick`` is one small split, in minutes; ``--data mnist --device cuda`` takes 5,000 MNIST digits.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orbitgp import files, metrics
from orbitgp.datasets import Dataset, digits, mnist
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.experiments.record import provenance
from orbitgp.orbits import Identity, Rotation

NAMES = ("gaussian", "dirichlet", "stick-breaking", "logistic-softmax", "bouchard", "one-vs-each", "bohning")
SCORES = ("error", "nll", "brier", "ece")


@dataclass(frozen=True)
class Config:
    """How large; see the top of this file."""

    data: str = "digits"
    names: tuple[str, ...] = NAMES
    orbits: tuple[str, ...] = ("none", "rotation")
    first_seed: int = 3
    seeds: int = 4
    num_train: int | None = None
    num_inducing: int = 150
    num_samples: int = 16
    max_steps: int = 200
    device: str = "cpu"


@dataclass(frozen=True)
class Fit:
    """One trained model and its scores on the test digits."""

    likelihood: str
    orbit: str
    seed: int
    error: float
    nll: float
    brier: float
    ece: float
    bound: float
    degrees: float
    seconds: float


def load(config: Config, seed: int) -> Dataset:
    """A split of the embedded digits, or the first MNIST digits after ``seed`` times as many."""
    if config.data == "digits":
        return digits(seed=seed)
    data, count = mnist(), config.num_train or 5000
    rows = slice(seed * count, (seed + 1) * count)
    return replace(data, x_train=data.x_train[rows], y_train=data.y_train[rows])


def fit(config: Config, data: Dataset, name: str, orbit: str, seed: int) -> tuple[Fit, np.ndarray]:
    """Train one model; its scores, and its probabilities for the test digits."""
    model = InvariantGPClassifier(
        Rotation(15.0) if orbit == "rotation" else Identity(),
        likelihood=name,
        num_inducing=config.num_inducing,
        num_samples=config.num_samples,
        max_steps=config.max_steps,
        device=config.device,
        random_state=seed,
    )
    rows = slice(config.num_train)
    begin = time.perf_counter()
    model.fit(data.x_train[rows], data.y_train[rows])
    seconds = time.perf_counter() - begin
    probs = model.predict_proba(data.x_test)
    bound = float(model.evidence_) / len(data.x_train[rows])
    degrees = model.orbit_.describe().get("degrees", 0.0)
    assert isinstance(degrees, float)
    return Fit(name, orbit, seed, **_scores(probs, data.y_test), bound=bound, degrees=degrees, seconds=seconds), probs


def _scores(probs: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    return {
        "error": metrics.error_rate(probs, labels),
        "nll": metrics.nll(probs, labels),
        "brier": metrics.brier(probs, labels),
        "ece": metrics.ece(probs, labels),
    }


def run(config: Config) -> list[dict[str, Any]]:
    """One row for each likelihood and orbit: scores of the predictions of all seeds together, and every fit by itself."""
    rows = []
    for orbit in config.orbits:
        for name in config.names:
            fits, probs, labels = [], [], []
            for seed in range(config.first_seed, config.first_seed + config.seeds):
                data = load(config, seed)
                result, predicted = fit(config, data, name, orbit, seed)
                fits.append(result)
                probs.append(predicted)
                labels.append(data.y_test)
            pooled = _scores(np.concatenate(probs), np.concatenate(labels))
            means = {key: float(np.mean([getattr(f, key) for f in fits])) for key in ("bound", "degrees", "seconds")}
            rows.append({"likelihood": name, "orbit": orbit, **pooled, **means, "fits": [asdict(f) for f in fits]})
            print(line(rows[-1]), flush=True)
    return rows


COLUMNS = ("likelihood", "orbit", "error", "NLL", "Brier", "ECE", "bound a datum", "angle", "seconds")
HEADER = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def line(row: dict[str, Any]) -> str:
    """One row of the table, in Markdown."""
    angle = f"±{row['degrees']:.0f}°" if row["orbit"] == "rotation" else ""
    scores = f"{row['error']:.2%} | {row['nll']:.4f} | {row['brier']:.4f} | {row['ece']:.4f} | {row['bound']:.3f}"
    return f"| {row['likelihood']} | {row['orbit']} | {scores} | {angle} | {row['seconds']:.0f} |"


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment, print its table, write ``likelihoods.json``."""
    parser = argparse.ArgumentParser(prog="python -m orbitgp.experiments.likelihoods", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for likelihoods.json (default: results)")
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--names", nargs="+", default=list(NAMES), metavar="NAME", help="likelihoods (default: all)")
    parser.add_argument("--orbits", nargs="+", choices=("none", "rotation"), default=["none", "rotation"])
    parser.add_argument("--seeds", type=int, default=Config.seeds, help="splits of the data (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=Config.first_seed, help="the first of them (default: %(default)s)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="one split, 500 digits, fewer steps")
    given = parser.parse_args(arguments)
    config = Config(given.data, tuple(given.names), tuple(given.orbits), given.first_seed, given.seeds, device=given.device)
    if given.data == "mnist":
        config = replace(config, num_train=5000, num_inducing=500, max_steps=300)
    if given.quick:
        config = replace(config, seeds=1, num_train=500, num_inducing=100, max_steps=60)
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    rows = run(config)
    path = given.out / "likelihoods.json"
    files.write_json(
        path, {"experiment": "likelihoods", "config": asdict(config), "results": rows, **provenance(config.device)}
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
