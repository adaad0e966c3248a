"""Where the local parameters come from: a recognition network, one value kept for each datum, or the draws of other groups.

Odd against even digits by the logistic likelihood, with learned rotations, for the same time with each source; q(u) by natural
gradients and by Adam, as in the paper. Two bounds are measured afterwards on fresh draws: with the local parameters that the
source itself gives, and with those that are best for the q(u) that was reached.

``python -m experiments.local_parameters --out results`` writes local_parameters.json and prints the table; ``--quick``
takes a fifth of the time.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from orbitgp import metrics
from orbitgp.datasets import Dataset, digits
from orbitgp.estimators.defaults import initial_kernel
from orbitgp.inference.elbo import Batch, elbo_of_all
from orbitgp.inference.evidence import measure_evidence
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.local_parameters import LocalName
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli
from orbitgp.orbits import Rotation
from orbitgp.report.provenance import provenance
from orbitgp.saving import atomic as files
from orbitgp.training.options import OptimizerName, TrainerSettings
from orbitgp.training.trainer import Trainer

SOURCES: tuple[LocalName, ...] = get_args(LocalName)
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)


@dataclass(frozen=True)
class Config:
    """How large; see the top of this file."""

    seconds: float = 30.0
    num_train: int | None = None
    first_seed: int = 0
    seeds: int = 1
    batch_size: int = 256
    num_samples: int = 16
    num_groups: int = 4
    num_inducing: int = 100
    max_steps: int = 100_000
    network_rate: float = 0.01
    degrees: float = 15.0
    device: str = "cpu"


def train(config: Config, source: LocalName, optimizer: OptimizerName, seed: int) -> dict[str, Any]:
    """One model with one source of local parameters."""
    data = digits(seed=seed)
    trainer = _trainer(config, data, source, optimizer, seed)
    trainer.run()
    trainer.local.eval()
    model, likelihood, x, y = trainer.local.setting
    fresh = torch.Generator(x.device).manual_seed(seed + 1)
    own = _own_bound(trainer, fresh)
    best = measure_evidence(model, likelihood, x, y, 64, 2, generator=fresh)
    mean, variance = model.predict(torch.tensor(data.x_test, device=x.device))
    probs, labels = Bernoulli().predict_proba(mean, variance).cpu(), data.y_test % 2
    return {
        "source": source,
        "optimizer": optimizer,
        "seed": seed,
        "steps": trainer.steps,
        "own_bound": own / len(x),
        "best_bound": best.value / len(x),
        "stderr": best.stderr / len(x),
        "error": metrics.error_rate(probs, labels),
        "nll": metrics.nll(probs, labels),
        "ece": metrics.ece(probs, labels),
        "degrees": model.orbit.describe()["degrees"],
    }


def _trainer(config: Config, data: Dataset, source: LocalName, optimizer: OptimizerName, seed: int) -> Trainer:
    rows = slice(config.num_train)
    likelihood = Bernoulli()
    x = torch.tensor(data.x_train[rows], device=config.device)
    y = likelihood.encode(torch.tensor(data.y_train[rows] % 2)).to(config.device)
    variance, _ = likelihood.start(y)
    generator = torch.Generator(config.device).manual_seed(seed)
    kernel, orbit = initial_kernel(None, x, variance, generator), Rotation(config.degrees).to(config.device)
    inducing = initial_inducing(x, orbit, kernel, config.num_inducing, "random", generator)
    model = InvariantGP(kernel, orbit, inducing).to(config.device)
    options = TrainerSettings(
        optimizer=optimizer,
        local=source,
        network_rate=config.network_rate,
        max_seconds=config.seconds,
        max_steps=config.max_steps,
        batch_size=config.batch_size,
        num_samples=config.num_samples,
        num_groups=config.num_groups,
        starts=(1.0,),
        seed=seed,
    )
    return Trainer(model, likelihood, x, y, options)


@torch.no_grad()
def _own_bound(trainer: Trainer, generator: torch.Generator, passes: int = 8) -> float:
    """The bound with the source's own local parameters, the mean of passes over the data with fresh draws."""
    model, likelihood, x, y = trainer.local.setting
    options = trainer.options

    def batch(rows: Tensor) -> Batch:
        samples = model.orbit.sample(x[rows], options.num_samples, options.num_groups, options.sampler, generator)
        return Batch(samples, y[rows], trainer.local.at(rows))

    parts = torch.arange(len(x), device=x.device).split(options.batch_size)
    return sum(elbo_of_all(model, likelihood, map(batch, parts)) for _ in range(passes)) / passes


COLUMNS = ("q(u)", "source", "steps", "bound a datum, its own c", "bound a datum, best c", "error", "NLL", "ECE", "angle")
HEADER = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def line(row: dict[str, Any]) -> str:
    """One row of the table, in Markdown."""
    bounds = f"{row['own_bound']:.4f} | {row['best_bound']:.4f}"
    scores = f"{row['error']:.2%} | {row['nll']:.4f} | {row['ece']:.4f}"
    return f"| {row['optimizer']} | {row['source']} | {row['steps']} | {bounds} | {scores} | ±{row['degrees']:.0f}° |"


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment, print its table, write ``local_parameters.json``."""
    parser = argparse.ArgumentParser(prog="python -m experiments.local_parameters", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for local_parameters.json (default: results)")
    parser.add_argument("--seconds", type=float, default=Config.seconds, help="for each model (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=Config.seeds, help="splits of the data (default: %(default)s)")
    parser.add_argument("--network-rate", type=float, default=Config.network_rate, help="(default: %(default)s)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    given = parser.parse_args(arguments)
    config = Config(given.seconds, seeds=given.seeds, network_rate=given.network_rate, device=given.device)
    if given.quick:
        config = replace(config, seconds=config.seconds / 5)
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    for optimizer in OPTIMIZERS:  # not counted: what is loaded or compiled on first use is paid for here
        train(replace(config, seconds=1.0, max_steps=3), "network", optimizer, config.first_seed)
    rows = []
    for seed in range(config.first_seed, config.first_seed + config.seeds):
        for optimizer in OPTIMIZERS:
            for source in SOURCES:
                rows.append(train(config, source, optimizer, seed))
                print(line(rows[-1]), flush=True)
    path = given.out / "local_parameters.json"
    record = {"experiment": "local_parameters", "config": asdict(config), "results": rows, **provenance(config.device)}
    files.write_json(path, record)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
