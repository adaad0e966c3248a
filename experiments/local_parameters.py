"""Where the local parameters come from: a recognition network, or one value kept for each datum.

Odd against even digits by the logistic likelihood, with learned rotations, for the same time with each source. Two
bounds are measured afterwards on fresh draws: with the local parameters that the source itself gives, and with those
that are best for the q(u) that was reached.

``python -m experiments local-parameters``; ``--quick`` takes a fifth of the time. Models that train side by side slow
each other down: ``--jobs 1``, the default, is for this comparison.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cache
from typing import get_args

import torch
from torch import Tensor

from experiments import harness
from experiments.harness import Record, Records
from orbitgp import metrics
from orbitgp.datasets import Dataset, digits
from orbitgp.estimators.initialise import initial_kernel
from orbitgp.inference.elbo import Batch, elbo_of_all
from orbitgp.inference.evidence import measure_evidence
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.local_parameters import LocalName
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli
from orbitgp.orbits import Rotation
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

SOURCES: tuple[LocalName, ...] = get_args(LocalName)


@dataclass(frozen=True)
class LocalParameters(harness.Run):
    """One model with one source of local parameters."""

    source: LocalName
    seed: int = 0
    seconds: float = 30.0
    num_train: int | None = None
    batch_size: int = 256
    num_samples: int = 16
    num_inducing: int = 100
    max_steps: int = 100_000
    degrees: float = 15.0

    def name(self) -> str:
        return harness.slug(self.source, self.seed)

    def measure(self, device: str) -> Record:
        _warm_up(device)
        data = harness.cut(digits(seed=self.seed), slice(self.num_train))
        trainer = self.trainer(data, device)
        history, steps = trainer.run(), trainer.steps
        model, likelihood, x, y = trainer.stochastic.local.setting
        fresh = torch.Generator(x.device).manual_seed(self.seed + 1)
        own = _own_bound(trainer, fresh)
        best = measure_evidence(model, likelihood, x, y, 64, passes=8, generator=fresh)
        mean, variance = model.predict(torch.tensor(data.x_test, device=x.device))
        probs, labels = Bernoulli().predict_proba(mean, variance).cpu(), data.y_test % 2
        return {
            "data": {"name": data.name, "train": len(x), "test": len(labels)},
            "seconds": {"training": history[-1]["seconds"]},
            "steps": steps,
            "evidence": {"value": best.value, "stderr": best.stderr, "own": own},
            "orbit": model.orbit.describe().to_dict(),
            "metrics": {
                score.__name__: score(probs, labels) for score in (metrics.error_rate, metrics.nll, metrics.ece)
            },
        }

    def trainer(self, data: Dataset, device: str) -> Trainer:
        """A model of these data, ready to train."""
        likelihood = Bernoulli()
        x = torch.tensor(data.x_train, device=device)
        y = likelihood.encode(torch.tensor(data.y_train % 2)).to(device)
        variance, _ = likelihood.start(y)
        generator = torch.Generator(device).manual_seed(self.seed)
        kernel, orbit = initial_kernel(None, x, variance, generator), Rotation(self.degrees).to(device)
        inducing = initial_inducing(x, orbit, kernel, self.num_inducing, "random", generator)
        options = TrainerSettings(
            local=self.source,
            max_seconds=self.seconds,
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            num_samples=self.num_samples,
            start_rows=0,
            seed=self.seed,
        )
        return Trainer(InvariantGP(kernel, orbit, inducing).to(device), likelihood, x, y, options)


@cache
def _warm_up(device: str) -> None:
    """A few steps that are not counted: they load and compile what is loaded and compiled on first use."""
    LocalParameters("network", seconds=1.0, max_steps=3).trainer(digits(), device).run()


@torch.no_grad()
def _own_bound(trainer: Trainer, generator: torch.Generator, passes: int = 8) -> float:
    """The bound with the source's own local parameters, the mean of passes over the data with fresh draws."""
    model, likelihood, x, y = trainer.stochastic.local.setting
    options = trainer.options

    def batch(rows: Tensor) -> Batch:
        samples = model.orbit.sample(x[rows], options.num_samples, 2, options.sampler, generator)
        return samples, y[rows], trainer.stochastic.local.at(rows)

    parts = torch.arange(len(x), device=x.device).split(options.batch_size)
    return sum(elbo_of_all(model, likelihood, map(batch, parts)).value for _ in range(passes)) / passes


def table(records: Records) -> str:
    """Both bounds of each model, and its scores."""
    cells = []
    for r in records:
        bounds = [f"{r['evidence'][name] / r['data']['train']:.4f}" for name in ("own", "value")]
        error, nll, ece = (r["metrics"][name] for name in ("error_rate", "nll", "ece"))
        scores = [f"{error:.2%}", f"{nll:.4f}", f"{ece:.4f}", f"±{r['orbit']['degrees']:.0f}°"]
        cells.append(
            [r["settings"].get("optimizer", "natural"), r["settings"]["source"], str(r["steps"]), *bounds, *scores]
        )
    scores = ["bound a datum, its own c", "bound a datum, best c", "error", "NLL", "ECE", "angle"]
    return harness.markdown(["q(u)", "source", "steps", *scores], cells)


def plan(options: argparse.Namespace) -> list[LocalParameters]:
    """Every source, split by split; a fifth of the time with ``--quick``."""
    settings = {"seconds": options.seconds / (5 if options.quick else 1)}
    return [LocalParameters(source, seed=seed, **settings) for seed in range(options.seeds) for source in SOURCES]


EXPERIMENT = harness.Experiment(
    "local_parameters",
    __doc__,
    plan,
    table,
    seeds=1,
    options={
        "--seconds": {"type": float, "default": 30.0, "help": "for each model (default: 30)"},
    },
)
