"""Likelihoods for ten classes, compared by test error, NLL, Brier score and calibration.

Every likelihood is trained in the same way on the same digits, without an orbit and with learned rotations. It predicts the
same test digits. The bound is given for each datum. It compares rows of one likelihood, never two likelihoods. Scores are
means over splits. Behind NLL and ECE is the standard error of the mean.

Few predictions in a bin make even perfect probabilities look uncalibrated. "Chance" is the ECE of labels drawn from the
predicted probabilities. "Pooled" is the ECE of the predictions of all splits together, which suffers less. Splits 0 to 2 were
used to choose the concentrations of the Dirichlet likelihood, so the default splits start at 3.

``python -m experiments.likelihoods --out results`` writes likelihoods.json and prints the table, in under two hours on one
core. ``--quick`` is one small split, in minutes. ``--data mnist --device cuda`` takes 5,000 MNIST digits. ``--jobs`` trains
several models at a time. Each result is written to likelihoods.jsonl as soon as it is there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp import metrics
from orbitgp.datasets import Dataset, digits, mnist
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.orbits import Identity, Rotation
from orbitgp.report.provenance import provenance
from orbitgp.saving import atomic as files

NAMES = ("gaussian", "dirichlet", "stick-breaking")


@dataclass(frozen=True)
class Config:
    """How large; see the top of this file."""

    data: str = "digits"
    names: tuple[str, ...] = NAMES
    orbits: tuple[str, ...] = ("none", "rotation")
    first_seed: int = 3
    seeds: int = 4
    num_train: int | None = None
    num_inducing: int = 200
    num_samples: int = 16
    max_steps: int = 300
    device: str = "cpu"


@dataclass(frozen=True)
class Job:
    """One model to train."""

    likelihood: str
    orbit: str
    seed: int


@dataclass(frozen=True)
class Fit(Job):
    """One trained model and its scores on the test digits."""

    error: float
    nll: float
    brier: float
    ece: float
    ece_chance: float
    calibration: list[float]
    num_test: int
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


def fit(job: Job, config: Config) -> Fit:
    """Train one model, and score its probabilities for the test digits."""
    data = load(config, job.seed)
    model = InvariantGPClassifier(
        Rotation(15.0) if job.orbit == "rotation" else Identity(),
        likelihood=job.likelihood,
        num_inducing=config.num_inducing,
        num_samples=config.num_samples,
        max_steps=config.max_steps,
        device=config.device,
        random_state=job.seed,
    )
    rows = slice(config.num_train)
    begin = time.perf_counter()
    model.fit(data.x_train[rows], data.y_train[rows])
    seconds = time.perf_counter() - begin
    probs = model.predict_proba(data.x_test)
    degrees = model.orbit_.describe().get("degrees", 0.0)
    assert isinstance(degrees, float)
    return Fit(
        **asdict(job),
        error=metrics.error_rate(probs, data.y_test),
        nll=metrics.nll(probs, data.y_test),
        brier=metrics.brier(probs, data.y_test),
        ece=metrics.ece(probs, data.y_test),
        ece_chance=_ece_of_the_calibrated(probs),
        calibration=metrics.calibration(probs, data.y_test).tolist(),
        num_test=len(probs),
        bound=float(model.evidence_) / len(data.x_train[rows]),
        degrees=degrees,
        seconds=seconds,
    )


def _ece_of_the_calibrated(probs: np.ndarray, draws: int = 50) -> float:
    """The mean ECE of labels that are drawn from these probabilities."""
    uniform = np.random.default_rng(0).random((draws, len(probs), 1))
    labels = np.minimum((probs.cumsum(1) < uniform).sum(2), probs.shape[1] - 1)
    return float(np.mean([metrics.ece(probs, drawn) for drawn in labels]))


def fits(config: Config, processes: int = 1) -> Iterator[Fit]:
    """All models, split by split, as they are done."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    todo = [Job(name, orbit, seed) for seed in seeds for orbit in reversed(config.orbits) for name in config.names]
    if processes == 1:
        yield from (fit(job, config) for job in todo)
        return
    with multiprocessing.get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        yield from pool.imap_unordered(partial(fit, config=config), todo)


def summary(done: list[Fit]) -> list[dict[str, Any]]:
    """One row for each orbit and likelihood: means over splits, and their standard errors."""
    rows = []
    for orbit, name in sorted({(f.orbit, f.likelihood) for f in done}, key=lambda key: (key[0], NAMES.index(key[1]))):
        group = sorted((f for f in done if (f.orbit, f.likelihood) == (orbit, name)), key=lambda f: f.seed)
        row: dict[str, Any] = {"likelihood": name, "orbit": orbit, "fits": [asdict(f) for f in group]}
        for score in ("error", "nll", "brier", "ece", "ece_chance", "bound", "degrees", "seconds"):
            values = np.array([getattr(f, score) for f in group])
            row[score] = float(values.mean())
            row[f"{score}_stderr"] = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
        pooled = np.sum([f.calibration for f in group], 0)
        row["ece_pooled"] = float(np.abs(pooled).sum() / sum(f.num_test for f in group))
        rows.append(row)
    return rows


COLUMNS = ("likelihood", "orbit", "error", "NLL", "Brier", "ECE", "chance", "pooled", "bound a datum", "angle", "seconds")
HEADER = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def line(row: dict[str, Any]) -> str:
    """One row of the table, in Markdown."""
    angle = f"±{row['degrees']:.0f}°" if row["orbit"] == "rotation" else ""
    nll, ece = (f"{row[score]:.4f} ± {row[f'{score}_stderr']:.4f}" for score in ("nll", "ece"))
    ece += f" | {row['ece_chance']:.4f} | {row['ece_pooled']:.4f}"
    scores = f"{row['error']:.2%} | {nll} | {row['brier']:.4f} | {ece} | {row['bound']:.3f}"
    return f"| {row['likelihood']} | {row['orbit']} | {scores} | {angle} | {row['seconds']:.0f} |"


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment, print its table, write ``likelihoods.json``."""
    parser = argparse.ArgumentParser(prog="python -m experiments.likelihoods", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for likelihoods.json (default: results)")
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--names", nargs="+", choices=NAMES, default=list(NAMES), help="likelihoods (default: all)")
    parser.add_argument("--orbits", nargs="+", choices=("none", "rotation"), default=["none", "rotation"])
    parser.add_argument("--seeds", type=int, default=Config.seeds, help="splits of the data (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=Config.first_seed, help="the first of them (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=Config.max_steps, help="of training (default: %(default)s)")
    parser.add_argument("--inducing", type=int, help="inducing points (default: 200, or 500 for MNIST)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models to train at a time")
    parser.add_argument("--quick", action="store_true", help="one split, 500 digits, fewer steps")
    given = parser.parse_args(arguments)
    config = Config(given.data, tuple(given.names), tuple(given.orbits), given.first_seed, given.seeds, device=given.device)
    config = replace(config, max_steps=given.steps, num_inducing=given.inducing or (500 if given.data == "mnist" else 200))
    if given.data == "mnist":
        config = replace(config, num_train=5000)
    if given.quick:
        config = replace(config, seeds=1, num_train=500, num_inducing=100, max_steps=60)
    given.out.mkdir(parents=True, exist_ok=True)
    done = []
    with (given.out / "likelihoods.jsonl").open("w") as lines:
        for result in fits(config, given.jobs):
            done.append(result)
            print(json.dumps(asdict(result)), file=lines, flush=True)
    rows = summary(done)
    print(HEADER, *map(line, rows), sep="\n")
    path = given.out / "likelihoods.json"
    files.write_json(
        path, {"experiment": "likelihoods", "config": asdict(config), "results": rows, **provenance(config.device)}
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
