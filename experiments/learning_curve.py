"""Learning curve: test error and bound of MNIST over seconds of training, for several numbers of inducing points.

All 60,000 digits, learned affine maps, Gaussian likelihood, from a cold start to the end: how long to the error that the paper
ends with, and what do more inducing points buy? From time to time the model, as it is then, predicts all test digits with a few
orbit samples. They are watched and never used: a run that nobody watches ends with the same model, bit for bit.

Three clocks. ``seconds`` of a point counts all that happens from the call of ``fit`` on, when the data are in memory: the
start of the GPU (in the first run of a process), inducing points, every step, the device's work to its end, the records of the
history; not the watching. ``training`` is the trainer's own clock, of steps alone. The seconds of the whole ``fit`` are
counted as the first, to its end: with the last refits of q(u) and the measurement of the evidence. Models that share a device
slow each other down: --jobs 1 is for times.

``python -m experiments learning-curve --device cuda``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments import harness, mnist
from experiments.harness import Claims, Record, Records, Settings
from orbitgp import metrics
from orbitgp.datasets import Dataset
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.estimators.base import PREDICT_SEED
from orbitgp.likelihoods import Categorical
from orbitgp.training.trainer import Trainer

SIZES = (250, 500, 1000, 2000, 4000)
TARGET = mnist.PAPER["affine"][0] / 100
WITHIN = (180, 60)  # seconds in which some model is to get there

FULL: Settings = harness.FULL | {"max_steps": 400}
QUICK_SIZES = (30, 100)
QUICK: Settings = mnist.QUICK | {"inducing_samples": 2, "spacing": 1.6}


class Watch:
    """A callback that keeps the curve: the test error of the model as it is, at steps that grow by a factor.

    ``seconds`` is how long the watching took; the clock starts with the object.
    """

    def __init__(self, data: Dataset, num_samples: int, spacing: float) -> None:
        self.curve: list[Record] = []
        self.seconds = 0.0
        self._data, self._num_samples, self._spacing = data, num_samples, spacing
        self._labels = np.searchsorted(np.unique(data.y_train), data.y_test)
        self._due = 0.0
        self._start = time.perf_counter()

    def begin(self, trainer: Trainer) -> None:
        """Training starts: this is what to look at."""
        self._trainer = trainer

    def __call__(self, record: Record) -> None:
        if record["step"] < self._due and self._trainer.fraction() < 1.0:
            return
        if self._trainer.x.is_cuda:
            torch.cuda.synchronize(self._trainer.x.device)
        now = time.perf_counter()
        point = {name: record[name] for name in ("step", "bound")}
        point |= {"seconds": now - self._start - self.seconds, "training": record["seconds"], "error_rate": self.error_rate()}
        self.curve.append(point)
        self._due = record["step"] * self._spacing
        self.seconds += time.perf_counter() - now

    def error_rate(self) -> float:
        """The test error now, with draws of its own: nothing of the run is touched."""
        trainer = self._trainer
        x = torch.tensor(self._data.x_test, dtype=trainer.x.dtype, device=trainer.x.device)
        mean, variance = trainer.model.predict(x, self._num_samples, seed=PREDICT_SEED)
        law = deepcopy(trainer.likelihood).cpu().predictive(mean.cpu(), variance.cpu())
        assert isinstance(law, Categorical)
        return metrics.error_rate(law.probs.numpy(), self._labels)


@dataclass(frozen=True)
class LearningCurve(mnist.MNIST):
    """One model of MNIST, watched while it learns; its record has a ``curve``."""

    watch_samples: int = 32  # of the orbit of a test digit
    spacing: float = 1.18  # each watched step is at least so many times the one before

    def name(self) -> str:
        return f"{self.num_inducing}-{super().name()}"

    def train(self, model: InvariantGPClassifier, data: Dataset) -> tuple[float, Record]:
        watch = Watch(data, self.watch_samples, self.spacing)
        start = time.perf_counter()
        model.fit(data.x_train, data.y_train, callback=watch)
        return time.perf_counter() - start - watch.seconds, {"curve": watch.curve, "seconds_watching": watch.seconds}


def all_runs(sizes: Sequence[int] = SIZES, seeds: int = 1, **settings: Any) -> list[LearningCurve]:
    """One run for each number of inducing points and each seed."""
    return [
        LearningCurve("affine", "affine", seed=seed, **settings | {"num_inducing": m}) for m in sizes for seed in range(seeds)
    ]


def by_inducing(records: Records) -> dict[int, Record]:
    """The record of each number of inducing points (of its first seed), the fewest first."""
    ordered = sorted(records, key=lambda r: (r["settings"]["num_inducing"], -r["settings"]["seed"]))
    return {r["settings"]["num_inducing"]: r for r in ordered}


def seconds_until(record: Record, error_rate: float = TARGET) -> float | None:
    """When the test error was first seen at or below this: at a watched point, or at last with the finished model."""
    points = [(point["seconds"], point["error_rate"]) for point in record["curve"]]
    points.append((record["seconds"]["fit"], record["metrics"]["error_rate"]))
    return next((seconds for seconds, error in points if error <= error_rate), None)


def check(records: Records) -> Claims:
    """More inducing points, more evidence; at the full size, some model gets to the paper's error in time."""
    found = by_inducing(records)
    evidence = {m: record["evidence"]["value"] for m, record in found.items()}
    wrong = [(a, b) for a, b in pairwise(evidence) if evidence[b] <= evidence[a]]
    claims = {"the evidence grows with M" + "".join(f"; not from {a:,} to {b:,}" for a, b in wrong): not wrong}
    if all(record["data"]["train"] == 60_000 for record in records):
        times = [seconds for seconds in map(seconds_until, records) if seconds is not None]
        for limit in WITHIN:
            claims[f"{100 * TARGET:.2f} % test error within {limit} seconds, with some M"] = min(times, default=np.inf) <= limit
    return claims


def table(records: Records) -> str:
    """What each number of inducing points ends with, and when it gets to the paper's error."""
    cells = []
    for m, record in by_inducing(records).items():
        until = seconds_until(record)
        numbers = [f"{100 * record['metrics']['error_rate']:.2f} %", f"{record['evidence']['value']:,.0f}"]
        cells.append([f"{m:,}", *numbers, f"{record['seconds']['fit']:.0f}", "–" if until is None else f"{until:.0f}"])
    return harness.markdown(["M", "test error", "evidence (nats)", "seconds", f"seconds to {100 * TARGET:.2f} %"], cells)


def figure(records: Records, path: Path) -> None:
    """Test error and bound over seconds, a line for each number of inducing points."""
    from matplotlib import colormaps  # an extra: everything but the picture works without it
    from matplotlib.figure import Figure

    found = by_inducing(records)
    fig = Figure(figsize=(9.0, 3.9), layout="constrained")
    left, right = fig.subplots(1, 2, sharex=True)
    shades = colormaps["viridis_r"](np.linspace(0.1, 1.0, len(found)))
    for (m, record), shade in zip(found.items(), shades, strict=True):
        seconds, errors, bounds = (
            np.array([point[name] for point in record["curve"]]) for name in ("seconds", "error_rate", "bound")
        )
        left.plot(seconds, 100 * errors, "o-", ms=3, lw=1.3, color=shade, label=f"M = {m:,}")
        right.plot(seconds, bounds, "o-", ms=3, lw=1.3, color=shade)
        end, finished = record["seconds"]["fit"], {"ms": 6, "mfc": "none", "mew": 1.3, "color": shade}
        left.plot(end, 100 * record["metrics"]["error_rate"], "D", **finished)
        right.plot(end, record["evidence"]["value"], "D", **finished)
    left.plot([], [], "D", ms=6, mfc="none", mew=1.3, color="0.4", label="the finished model")
    left.axhline(100 * TARGET, color="0.4", lw=0.8, zorder=0)
    left.set(xscale="log", yscale="log", xlabel="seconds", ylabel="test error (%)")
    label = f"the paper: {100 * TARGET:.2f} %"
    left.text(0.01, 100 * TARGET, label, color="0.4", size=8, va="bottom", transform=left.get_yaxis_transform())
    # Bounds start far below the end: from a third of the points on, what is left to gain can be seen.
    low = min(record["curve"][len(record["curve"]) // 3]["bound"] for record in found.values())
    right.set(xlabel="seconds", ylabel="bound (nats)", ylim=(low, None))
    right.yaxis.set_major_formatter("{x:,.0f}")
    for axis, limits in ((left.xaxis, left.get_xlim()), (left.yaxis, left.get_ylim())):
        ticks = [mantissa * 10.0**power for power in range(-2, 5) for mantissa in (1, 1.5, 2, 3, 5, 7)]
        ticks = [tick for tick in ticks if limits[0] <= tick <= limits[1]]
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    for ax in (left, right):
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, loc="upper right", fontsize=8)
    harness.save_figure(fig, path)


def plan(options: argparse.Namespace) -> list[LearningCurve]:
    """A model for each number of inducing points that was asked for."""
    sizes = options.inducing or (QUICK_SIZES if options.quick else SIZES)
    return all_runs(sizes, options.seeds, **(QUICK if options.quick else FULL))


EXPERIMENT = harness.Experiment(
    "learning_curve",
    __doc__,
    plan,
    table,
    check,
    figure,
    seeds=1,
    options={"--inducing": {"type": int, "nargs": "+", "help": "numbers of inducing points"}},
)
