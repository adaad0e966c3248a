"""One harness for all experiments: plan models, train those without a record, summarise, draw, say which claims hold.

A :class:`Run` names everything that one model depends on: data, orbit, likelihood, budget, seed. An :class:`Experiment`
says which runs there are, and which table, picture and claims follow from their records. The records of an experiment
are one file, ``NAME.jsonl``, with one line for each run. A run whose record has the same settings is not repeated, so a
long experiment can be done in pieces.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from orbitgp import TrainingOptions, metrics
from orbitgp.comparison.parallel import as_done
from orbitgp.datasets import Dataset, digits, mnist, rotate
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.summary import provenance
from orbitgp.saving import container
from orbitgp.training.records import hyperparameters

Record = dict[str, Any]
Records = Sequence[Record]
Settings = dict[str, Any]
Claims = dict[str, bool]  # what an experiment is to show, and whether it does

RESULTS = Path(__file__).parents[1] / "results"  # of this checkout, for experiments that show others beside their own
# For many data and inducing points on a GPU; chosen by the bound, on MNIST.
FULL: Settings = {
    "num_inducing": 1000,
    "inducing_samples": 2,
    "max_steps": 500,
    "batch_size": 800,
    "num_samples": 32,
    "options": {"posterior_rows": 12_000},
}
QUICK: Settings = {
    "num_test": 500,
    "num_inducing": 100,
    "max_steps": 40,
    "batch_size": 200,
    "num_samples": 8,
    "num_predict_samples": 16,
    "options": {"start_rows": 0},
}
SCORES = (metrics.error_rate, metrics.nll, metrics.brier, metrics.ece)
FACTORS = ("scale", "contrast")  # the quantities of an orbit that multiply


def cut(data: Dataset, train: Any, test: Any = slice(None)) -> Dataset:
    """Some rows of the training data and of the test data."""
    x, y = data.x_train[train], data.y_train[train]
    return replace(data, x_train=x, y_train=y, x_test=data.x_test[test], y_test=data.y_test[test])


def digits_of(dataset: str) -> Dataset:
    """MNIST (``mnist``), or the embedded digits that stand for it in a small version."""
    return mnist() if dataset == "mnist" else digits()


def turned(data: Dataset, degrees: float, seed: int) -> Dataset:
    """Every image turned by a random angle within ±``degrees``; those to test by draws of their own."""
    (x_train, _), (x_test, _) = rotate(data.x_train, degrees, 2 * seed), rotate(data.x_test, degrees, 2 * seed + 1)
    return replace(data, x_train=x_train, x_test=x_test)


@dataclass(frozen=True)
class Run:
    """What one line of the records depends on, as fields; a subclass says how to measure it."""

    def name(self) -> str:
        """The name of its record, different for each run of an experiment."""
        raise NotImplementedError

    def measure(self, device: str) -> Record:
        """The results."""
        raise NotImplementedError

    def run(self, device: str = "cpu") -> Record:
        """The results, with all that is needed to get them again."""
        head = {"name": self.name(), "commit": commit(), "settings": asdict(self)}
        return {**head, **made_by(device), **self.measure(device)}

    def scores(self, probs: np.ndarray, labels: np.ndarray) -> Record:
        """How well the probabilities predict the test labels, for runs that classify."""
        return {score.__name__: score(probs, labels) for score in SCORES}


def slug(*parts: object) -> str:
    """Letters and digits of the parts, with hyphens between them."""
    return re.sub("[^A-Za-z0-9.]+", "-", "-".join(map(str, parts)))


def made_by(device: str) -> Record:
    """The versions and the hardware that results depend on most."""
    found = provenance(device)
    versions = {name: found["versions"][name] for name in ("orbitgp", "torch")}
    return {
        "versions": versions,
        "hardware": {name: found["hardware"][name] for name in found["hardware"] if name != "threads"},
    }


@cache
def commit() -> str | None:
    """The commit of the checkout that runs, None outside of one."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        return subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@dataclass(frozen=True)
class Training(Run):
    """One classifier; subclasses say which data. ``options`` are further ones of :class:`TrainingOptions`.

    The evidence is measured on fresh draws of the training data. The test data come last: nothing before has seen them.
    """

    model: str  # what the tables call it
    orbit: str = "none"
    likelihood: str = "gaussian"
    gradients: Settings | None = None  # arguments of OrientedGradients; None if the kernel sees pixels
    seed: int = 0
    num_inducing: int = 1000
    inducing_samples: int = 1
    max_steps: int = 600
    max_seconds: float | None = None
    batch_size: int | None = 800
    num_samples: int = 32
    num_predict_samples: int = 128
    options: Settings = field(default_factory=dict)

    def data(self) -> Dataset:
        """Training and test data of this run."""
        raise NotImplementedError

    def name(self) -> str:
        return slug(self.model, self.seed)

    def measure(self, device: str) -> Record:
        data = self.data()
        options = {name: getattr(self, name) for name in ("inducing_samples", "num_predict_samples")} | self.options
        names = ("likelihood", "num_inducing", "max_steps", "max_seconds", "batch_size", "num_samples")
        model = InvariantGPClassifier(
            make_orbit(self.orbit),
            feature_map=None if self.gradients is None else OrientedGradients(**self.gradients),
            device=device,
            random_state=self.seed,
            training=TrainingOptions(**options),
            **{name: getattr(self, name) for name in names},
        )
        begin = time.perf_counter()
        model.fit(data.x_train, data.y_train)
        fitted = time.perf_counter()
        probs, labels = model.predict_proba(data.x_test), np.searchsorted(model.classes_, data.y_test)
        predicted = time.perf_counter()
        trained = model.history_[-1]["seconds"]
        return {
            "data": {"name": data.name, "train": len(data.y_train), "test": len(data.y_test)},
            "seconds": {"fit": fitted - begin, "training": trained, "predict": predicted - fitted},
            "evidence": asdict(model.evidence_),
            "orbit": model.orbit_.describe().to_dict(),
            "learned": hyperparameters(model.model_.kernel, model.likelihood_),
            "metrics": self.scores(probs, labels),
        }


def load(path: Path) -> dict[str, Record]:
    """The records of a file by name, in their order; none if there is no file yet."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {record["name"]: record for record in map(json.loads, lines)}


def rounded(value: Any) -> Any:
    """The same with numbers of eight digits, which is more than any of them is worth."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, Mapping):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def store(path: Path, records: Iterable[Record]) -> None:
    """Write the records, a line each; a reader finds the old file or the new one, never a part."""
    text = "".join(json.dumps(rounded(record), ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    container.replace(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def execute(runs: Sequence[Run], path: Path, device: str = "cpu", jobs: int = 1) -> list[Record]:
    """The records of all runs, in their order; those that are missing are made, ``jobs`` at a time.

    A run that fails does not stop the others; its error is raised when they are done.
    """
    names = [run.name() for run in runs]
    if len(set(names)) < len(names):
        raise ValueError("two runs of this experiment have the same name: let name() tell them apart.")
    known = load(path)
    todo = [run for run in runs if known.get(run.name(), {}).get("settings") != json.loads(json.dumps(asdict(run)))]
    failures: list[Exception] = []
    with tqdm(total=len(todo), unit="model", mininterval=5) as bar:
        for _, outcome in as_done(partial(_attempt, device=device), todo, jobs):
            if isinstance(outcome, Exception):
                failures.append(outcome)
            else:  # read again, as another process may have written
                store(path, (load(path) | {outcome["name"]: outcome}).values())
            bar.update()
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(todo)} runs failed", failures)
    known = load(path)
    if todo and set(known) == set(names):
        store(path, (known[name] for name in names))
    return [known[name] for name in names]


def _attempt(run: Run, device: str) -> Record | Exception:
    try:
        return run.run(device)
    except Exception as error:
        error.add_note(f"in {run}")
        return error


@dataclass(frozen=True)
class Experiment:
    """Which runs there are, and what follows from their records. ``main`` is its command line.

    Args:
        name: of the records, ``NAME.jsonl``, and the picture, ``NAME.png``.
        description: its first line explains the command.
        plan: the runs, from the options of the command line.
        table: a summary in Markdown.
        check: what the experiment is to show, and whether it does.
        figure: draws the picture, if there is one, to a path.
        models: their names, in the order of the table.
        seeds: how many there are by default; with ``--quick`` there is one.
        options: further options of the command line, each with the arguments of ``add_argument``.
        on_gpu: whether it can run there.
        pack: the same records in fewer lines, as they are kept when a run has ended; ``table`` and ``check`` read both.
    """

    name: str
    description: str
    plan: Callable[[argparse.Namespace], Sequence[Run]]
    table: Callable[[Records], str]
    check: Callable[[Records], Claims] = lambda _: {}
    figure: Callable[[Records, Path], None] | None = None
    models: Sequence[str] = ()
    seeds: int = 3
    options: Mapping[str, Settings] = field(default_factory=dict)
    on_gpu: bool = True
    pack: Callable[[Records], list[Record]] | None = None

    def parser(self) -> argparse.ArgumentParser:
        """The options that every experiment has, and its own."""
        parser = argparse.ArgumentParser(
            prog=f"python -m experiments {self.name.replace('_', '-')}", description=self.description.split("\n")[0]
        )
        parser.add_argument("--out", type=Path, default=Path("results"), help="folder for records and pictures")
        devices = None if self.on_gpu else ["cpu"]
        parser.add_argument("--device", default="cpu", choices=devices, help="where to train (default: cpu)")
        parser.add_argument("--jobs", type=int, default=1, help="models to train at a time (default: 1)")
        parser.add_argument("--seeds", type=int, help=f"runs of each model (default: {self.seeds}, or 1 with --quick)")
        parser.add_argument("--quick", action="store_true", help="a small version, in minutes on two cores")
        parser.add_argument(
            "--draw", action="store_true", help="train nothing: table and picture of the records that exist"
        )
        parser.add_argument("--label", default="", help="keep these records apart, in NAME_LABEL.jsonl")
        for name, arguments in self.options.items():
            parser.add_argument(name, **arguments)
        return parser

    def recorded(self, path: Path) -> list[Record]:
        """The records of a file, in the order of ``models`` and seeds if these are given."""
        found = list(load(path).values())
        if self.models:
            found.sort(key=lambda record: (self.models.index(record["settings"]["model"]), record["settings"]["seed"]))
        return found

    def main(self, arguments: list[str] | None = None) -> Claims:
        """Train what has no record yet, print the table, draw the picture, print and return which claims hold."""
        parser = self.parser()
        options = parser.parse_args(arguments)
        if options.device.startswith("cuda") and not torch.cuda.is_available():
            parser.error("there is no GPU here: leave --device out, or run it where there is one.")
        options.seeds = options.seeds or (1 if options.quick else self.seeds)
        path = options.out / f"{'_'.join(filter(None, (self.name, options.label)))}.jsonl"
        records = (
            self.recorded(path) if options.draw else execute(self.plan(options), path, options.device, options.jobs)
        )
        if self.pack is not None:
            records = self.pack(self.recorded(path))
            store(path, records)
        print(self.table(records))
        if self.figure is not None and find_spec("matplotlib") is not None:  # --draw makes the picture elsewhere
            self.figure(records, path.with_suffix(".png"))
        claims = self.check(records)
        for claim, holds in claims.items():
            print(f"{'holds' if holds else 'DOES NOT HOLD'}: {claim}")
        return claims


def some_models(models: Iterable[str]) -> dict[str, Settings]:
    """The option of an experiment that can run a part of its models."""
    names = list(models)
    return {"--models": {"nargs": "+", "choices": names, "default": names, "help": "only some of the models"}}


def model_options(models: Iterable[str]) -> dict[str, Settings]:
    """The options of an experiment that compares models; :func:`chosen` reads them."""
    return some_models(models) | {
        "--inducing": {"type": int, "help": "inducing points"},
        "--steps": {"type": int, "help": "training steps"},
    }


def chosen(options: argparse.Namespace, full: Settings, quick: Settings) -> Settings:
    """The settings of the size that was asked for, with the inducing points and steps of the command line."""
    given = {"num_inducing": options.inducing, "max_steps": options.steps}
    return (quick if options.quick else full) | {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Row:
    """What the seeds of one model say together: means and standard errors.

    Those are over seeds where there are several. With one, they say how well its test error and its bound are known.
    """

    model: str
    likelihood: str
    seeds: int
    train: int
    error: float
    error_stderr: float
    nll: float
    ece: float
    evidence: float
    evidence_stderr: float
    seconds: float
    orbit: dict[str, Any]


def grouped(records: Records, *settings: str) -> dict[tuple[Any, ...], list[Record]]:
    """The records that agree in these settings, in the order in which these first occur."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record["settings"][name] for name in settings), []).append(record)
    return groups


def rows(records: Records) -> list[Row]:
    """One row for each model, in the order in which they first occur."""
    return [_row(name, group) for (name,), group in grouped(records, "model").items()]


def _row(name: str, group: list[Record]) -> Row:
    first = group[0]
    error, error_stderr = mean([r["metrics"]["error_rate"] for r in group])
    evidence, evidence_stderr = mean([r["evidence"]["value"] for r in group])
    if len(group) == 1:
        error_stderr = (error * (1 - error) / first["data"]["test"]) ** 0.5
        evidence_stderr = first["evidence"]["stderr"]
    return Row(
        model=name,
        likelihood=first["settings"]["likelihood"],
        seeds=len(group),
        train=first["data"]["train"],
        error=error,
        error_stderr=error_stderr,
        nll=mean([r["metrics"]["nll"] for r in group])[0],
        ece=mean([r["metrics"]["ece"] for r in group])[0],
        evidence=evidence,
        evidence_stderr=evidence_stderr,
        seconds=mean([r["seconds"]["fit"] for r in group])[0],
        orbit=first["orbit"],
    )


def mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is zero for a single value."""
    stderr = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    return float(np.mean(values)), stderr


def markdown(titles: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table of a page."""
    lines = ["| " + " | ".join(row) + " |" for row in (titles, *cells)]
    return "\n".join([lines[0], "|---" * len(titles) + "|", *lines[1:]])


def table(found: Sequence[Row], beside: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """The rows as Markdown; ``beside`` are further columns, each a text for some of the models."""
    beside = beside or {}
    cells = []
    for row in found:
        error, evidence = error_and_evidence(row)
        further = [column.get(row.model, "") for column in beside.values()]
        cells.append([row.model, error, *further, f"{row.nll:.3f}", f"{row.ece:.4f}", evidence, f"{row.seconds:.0f}"])
    return markdown(["model", "test error", *beside, "NLL", "ECE", "evidence (nats)", "seconds"], cells)


def error_and_evidence(row: Row) -> tuple[str, str]:
    """Test error and evidence in words, of several seeds with their standard errors, of one with the error of its
    draws."""
    error = f"{100 * row.error:.2f}" + (f" ± {100 * row.error_stderr:.2f}" if row.seeds > 1 else "")
    return f"{error} %", with_error(row.evidence, row.evidence_stderr)


def with_error(value: float, error: float, digits: int = 0, sign: str = "") -> str:
    """A number with its error, where that is not zero when it is rounded like the number."""
    said = f"{error:,.{digits}f}"
    return f"{value:{sign},.{digits}f}" + (f" ± {said}" if float(said.replace(",", "")) else "")


def table_with_learned(records: Records, beside: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Errors and bounds of the models, with what each has learned, and further columns."""
    found = rows(records)
    return table(found, {**(beside or {}), "learned": learned(found)})


def picks_less_error(where: str, found: Sequence[Row]) -> Claims:
    """Of these models, the one that the bound picks has less error than the one without an orbit."""
    none = next(row for row in found if row.model.startswith("none"))
    picked = max(found, key=attrgetter("evidence"))
    return {f"{where}: the bound picks {picked.model}, with less error than none": picked.error < none.error}


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
    """How far the orbit of each model (of its first seed) reaches, in words."""
    return {row.model: reach(row.orbit) for row in found}


def reach(orbit: Mapping[str, float | Sequence[float]]) -> str:
    """The quantities of an orbit in words.

    A range is given by its width and a factor by the ratio of its ends: g makes up for where the range lies.
    """
    return "; ".join(f"{name} {_reach(name, value)}" for name, value in orbit.items())


def _reach(name: str, value: float | Sequence[float]) -> str:
    if isinstance(value, float | int):
        return f"{value:.3g}"
    low, high = value
    return f"×{high / low:.2g}" if name.rpartition(".")[2].startswith(FACTORS) else f"{high - low:.3g} wide"


def save_figure(figure: Any, path: Path, dpi: int = 130) -> None:
    """The figure as a PNG of 256 colours, which takes a third of the space."""
    from PIL import Image  # matplotlib needs it too

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png")
    # This method keeps rare colours, such as the ends of a colour scale.
    picture = (
        Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    container.replace(path, lambda beside: picture.save(beside, format="PNG", optimize=True))
