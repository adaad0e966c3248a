"""Runs: an experiment is a list of models, and its record one file for each.

A :class:`Run` names everything that a model depends on: data, orbit, likelihood, budget, seed. Running it trains the model,
measures its evidence on fresh draws of the training data and, last, its errors on the test data, which nothing before has seen.
A run whose record is there already, with the same settings, is not repeated; so a long experiment can be done in pieces.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from tqdm.auto import tqdm

from orbitgp import TrainingOptions, metrics
from orbitgp.datasets import Dataset
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.kernels.oriented_gradients import OrientedGradients
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.provenance import provenance
from orbitgp.saving import atomic as files

Record = dict[str, Any]
Claims = dict[str, bool]  # what an experiment is to show, and whether it does

# Of training with many data and inducing points on a GPU: chosen by the bound, on MNIST.
OPTIONS = {"posterior_samples": 16, "posterior_rows": 12_000, "posterior_every": 2, "inducing_rate": 0.03}

FACTORS = ("scale", "contrast")  # of an orbit's quantities, those that multiply
RECORDS = 60  # points of the history that are kept


@dataclass(frozen=True)
class Run:
    """One model. Subclasses say which data."""

    experiment: ClassVar[str]

    model: str  # what the tables call it
    orbit: str = "none"
    likelihood: str = "gaussian"
    gradients: dict[str, Any] | None = None  # arguments of OrientedGradients; None where the kernel sees pixels
    seed: int = 0
    num_inducing: int = 1000
    inducing_samples: int = 1
    max_steps: int = 600
    max_seconds: float | None = None
    batch_size: int = 800
    num_samples: int = 32
    num_predict_samples: int = 128
    options: dict[str, Any] = field(default_factory=dict)

    def data(self) -> Dataset:
        """Training and test data of this run."""
        raise NotImplementedError

    def name(self) -> str:
        """The name of its record, different for each run of an experiment."""
        return re.sub("[^A-Za-z0-9]+", "-", f"{self.model}-{self.seed}")

    def run(self, device: str = "cpu") -> Record:
        """Train the model and measure it."""
        data = self.data()
        names = ("num_inducing", "max_steps", "max_seconds", "batch_size", "num_samples")
        averages: dict[str, Any] = {"inducing_samples": self.inducing_samples, "num_predict_samples": self.num_predict_samples}
        model = InvariantGPClassifier(
            make_orbit(self.orbit),
            likelihood=self.likelihood,
            feature_map=None if self.gradients is None else OrientedGradients(**self.gradients),
            device=device,
            random_state=self.seed,
            training=TrainingOptions(**averages, **self.options),
            **{name: getattr(self, name) for name in names},
        )
        seconds, further = self.train(model, data)
        start = time.perf_counter()
        probs, labels = model.predict_proba(data.x_test), np.searchsorted(model.classes_, data.y_test)
        return {
            "experiment": self.experiment,
            "name": self.name(),
            "settings": asdict(self),
            "data": {"name": data.name, "source": data.source, "train": len(data.y_train), "test": len(data.y_test)},
            **provenance(device),
            "seconds": {"fit": seconds, "training": model.history_[-1]["seconds"], "predict": time.perf_counter() - start},
            "evidence": asdict(model.evidence_),
            "orbit": model.orbit_.describe().to_dict(),
            "metrics": {score.__name__: score(probs, labels) for score in SCORES},
            "history": model.history_[:: max(1, len(model.history_) // RECORDS)],
            **further,
        }

    def train(self, model: InvariantGPClassifier, data: Dataset) -> tuple[float, Record]:
        """Fit the model: the seconds that it took, and what else a subclass wants in the record."""
        start = time.perf_counter()
        model.fit(data.x_train, data.y_train)
        return time.perf_counter() - start, {}


SCORES = (metrics.error_rate, metrics.nll, metrics.brier, metrics.ece)


def execute(runs: Sequence[Run], folder: Path, device: str = "cpu", jobs: int = 1) -> list[Record]:
    """The records of all runs, in their order; those that are missing are made, several at a time.

    A run that fails does not stop the others; the error comes when they are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{run.name()}.json" for run in runs]
    if len(set(paths)) < len(paths):
        raise ValueError("two runs of this experiment have one name.")
    todo = [(run, path) for run, path in zip(runs, paths, strict=True) if not _is_done(run, path)]
    work = partial(_make, device=device, threads=1 if jobs > 1 else None)
    if jobs == 1:
        _finish(map(work, todo), len(todo))
    else:
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            _finish(pool.imap_unordered(work, todo), len(todo))
            pool.close()
            pool.join()  # workers end by themselves and leave nothing behind
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def _finish(outcomes: Iterable[str | Exception], count: int) -> None:
    failures = []
    with tqdm(outcomes, total=count, unit="model", disable=None) as bar:
        for outcome in bar:
            bar.set_postfix_str(str(outcome))
            if isinstance(outcome, Exception):
                failures.append(outcome)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {count} runs failed", failures)


def _make(todo: tuple[Run, Path], device: str, threads: int | None) -> str | Exception:
    run, path = todo
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        record = run.run(device)
    except Exception as error:
        error.add_note(f"in {run}")
        return error
    files.write_json(path, record)
    return f"{run.name()}: {100 * record['metrics']['error_rate']:.2f} %"


def _is_done(run: Run, path: Path) -> bool:
    if not path.exists():
        return False
    settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    later = {"gradients": None}  # a setting that the first records do not name
    return bool(later | settings == json.loads(json.dumps(asdict(run))))


@dataclass(frozen=True)
class Row:
    """What the seeds of one model say together: means and standard errors.

    Those are over seeds where there are several. With one, they say how well its test error and its bound are known.
    """

    model: str
    seeds: int
    error: float
    error_stderr: float
    nll: float
    ece: float
    evidence: float
    evidence_stderr: float
    seconds: float
    train: int
    test: int
    orbit: dict[str, Any]
    likelihood: str


def rows(records: Sequence[Record]) -> list[Row]:
    """One row for each model, in the order in which they first occur."""
    names = list(dict.fromkeys(record["settings"]["model"] for record in records))
    found = []
    for name in names:
        group = [record for record in records if record["settings"]["model"] == name]
        error, error_stderr = _mean([r["metrics"]["error_rate"] for r in group])
        evidence, evidence_stderr = _mean([r["evidence"]["value"] for r in group])
        if len(group) == 1:
            error_stderr = (error * (1 - error) / group[0]["data"]["test"]) ** 0.5
            evidence_stderr = group[0]["evidence"]["stderr"]
        nll, ece, seconds = (
            _mean(values)[0]
            for values in (
                [r["metrics"]["nll"] for r in group],
                [r["metrics"]["ece"] for r in group],
                [r["seconds"]["fit"] for r in group],
            )
        )
        numbers = (error, error_stderr, nll, ece, evidence, evidence_stderr, seconds)
        data, orbit, likelihood = group[0]["data"], group[0]["orbit"], group[0]["settings"]["likelihood"]
        found.append(Row(name, len(group), *numbers, data["train"], data["test"], orbit, likelihood))
    return found


def _mean(values: Sequence[float]) -> tuple[float, float]:
    stderr = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    return float(np.mean(values)), stderr


def table(found: Sequence[Row], beside: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The rows as Markdown; ``beside`` are further columns, each a text for some of the models."""
    beside = beside or {}
    titles = ["model", "test error", *beside, "NLL", "ECE", "evidence (nats)", "seconds"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for row in found:
        error = f"{100 * row.error:.2f} ± {100 * row.error_stderr:.2f} %" if row.seeds > 1 else f"{100 * row.error:.2f} %"
        evidence = f"{row.evidence:,.0f} ± {row.evidence_stderr:,.0f}" if row.seeds > 1 else f"{row.evidence:,.0f}"
        further = [column.get(row.model, "") for column in beside.values()]
        cells = [row.model, error, *further, f"{row.nll:.3f}", f"{row.ece:.4f}", evidence, f"{row.seconds:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def disagreements(found: Sequence[Row]) -> list[tuple[str, str]]:
    """Pairs of models, more than two standard errors apart in both, that bound and test error rank differently.

    Bounds of different likelihoods do not compare.
    """
    wrong = []
    for i, a in enumerate(found):
        for b in (row for row in found[i + 1 :] if row.likelihood == a.likelihood):
            error, evidence = a.error - b.error, a.evidence - b.evidence
            clear = abs(error) > 2 * np.hypot(a.error_stderr, b.error_stderr)
            clear &= abs(evidence) > 2 * np.hypot(a.evidence_stderr, b.evidence_stderr)
            if clear and error * evidence > 0:
                wrong.append((a.model, b.model))
    return wrong


def learned(found: Sequence[Row]) -> dict[str, str]:
    """How far the orbit of each model (of its first seed) reaches, in words.

    Of ranges the width alone, of factors the ratio of their ends: where the range lies, g makes up for.
    """
    return {row.model: "; ".join(f"{name} {_reach(name, value)}" for name, value in row.orbit.items()) for row in found}


def _reach(name: str, value: float | Sequence[float]) -> str:
    if isinstance(value, float | int):
        return f"{value:.3g}"
    low, high = value
    return f"×{high / low:.2g}" if name.rpartition(".")[2].startswith(FACTORS) else f"{high - low:.3g} wide"


def say(claims: Claims) -> Claims:
    """Print which claims hold; the same claims."""
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")
    return claims


def draw(figure: Callable[[Sequence[Record], Path], None], records: Sequence[Record], path: Path) -> None:
    """The picture, where there is something to draw it with; it can be drawn later, from the records."""
    if find_spec("matplotlib") is not None:
        figure(records, path)


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    result = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=description)
    result.add_argument("--out", type=Path, default=Path("results"), help="folder for records, tables and pictures")
    result.add_argument("--device", default="cpu")
    result.add_argument("--jobs", type=int, default=1, help="models to train at a time")
    result.add_argument("--quick", action="store_true", help="a small version, in minutes on two cores")
    return result


def conclude(
    name: str,
    todo: Sequence[Run],
    options: argparse.Namespace,
    table: Callable[[Sequence[Record]], str],
    check: Callable[[Sequence[Record]], Claims],
    figure: Callable[[Sequence[Record], Path], None] | None = None,
) -> Claims:
    """Train what has no record yet, print the table, draw the picture if there is one, say what holds."""
    records = execute(todo, options.out / name, options.device, options.jobs)
    print(table(records))
    if figure is not None:
        draw(figure, records, options.out / f"{name}.png")
    return say(check(records))


def compare_models(
    name: str,
    description: str,
    arguments: list[str] | None,
    models: Iterable[str],
    make: Callable[..., Sequence[Run]],
    full: dict[str, Any],
    quick: dict[str, Any],
    table: Callable[[Sequence[Record]], str],
    check: Callable[[Sequence[Record]], Claims],
) -> Claims:
    """The command line of an experiment that compares models over seeds: train what has no record yet, say what holds.

    ``make(seeds, models, **settings)`` are its runs, ``full`` and ``quick`` the settings of both sizes.
    """
    options = parser(name, description)
    options.add_argument("--seeds", type=int, default=3, help="runs of each model (default: 3)")
    options.add_argument("--models", nargs="+", choices=list(models), default=list(models), help="some of the models only")
    options.add_argument("--inducing", type=int, help="inducing points")
    options.add_argument("--steps", type=int, help="training steps")
    chosen = options.parse_args(arguments)
    given = {"num_inducing": chosen.inducing, "max_steps": chosen.steps}
    settings = (quick if chosen.quick else full) | {name: value for name, value in given.items() if value is not None}
    todo = make(1 if chosen.quick else chosen.seeds, chosen.models, **settings)
    return conclude(name, todo, chosen, table, check)
