"""Where the local parameters come from: a recognition network, one value kept for each datum, or the draws of other groups.

Odd against even digits by the logistic likelihood, with learned rotations: q(u), kernel, inducing points and orbit all by Adam
on minibatches, as in the paper, for the same time with each source. Two bounds are measured afterwards on fresh draws: with the
local parameters that the source itself gives, and with those that are best for the q(u) that was reached.

``python -m orbitgp.experiments.local_parameters --out results`` writes local_parameters.json and prints the table; ``--quick``
takes a fifth of the time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from jaxtyping import Float, Int
from torch import Tensor, nn

from orbitgp import files, metrics
from orbitgp.datasets import digits
from orbitgp.evidence import measure_evidence
from orbitgp.experiments.record import provenance
from orbitgp.inducing import initial_inducing
from orbitgp.likelihoods import Bernoulli
from orbitgp.likelihoods.polyagamma import root_second
from orbitgp.moments import Moments
from orbitgp.orbits import Pairing, Rotation, Samples
from orbitgp.recognition import RecognitionNetwork
from orbitgp.variational import InvariantGP


@dataclass(frozen=True)
class Config:
    """How large; see the top of this file."""

    seconds: float = 30.0
    num_train: int | None = None
    seeds: int = 1
    batch_size: int = 256
    num_samples: int = 16
    num_groups: int = 4
    num_inducing: int = 100
    learning_rate: float = 0.02
    degrees: float = 15.0


Rows = Int[Tensor, " rows"]
Terms = Float[Tensor, " rows"]


class Source(nn.Module):
    """The data terms of the bound from fresh samples, with local parameters that do not depend on them."""

    def __init__(self, model: InvariantGP, likelihood: Bernoulli, x: Tensor, y: Tensor) -> None:
        super().__init__()
        self.setting = (model, likelihood, x, y)  # in a tuple: they are no parameters of a source

    def terms(self, rows: Rows, samples: Samples) -> Terms:
        raise NotImplementedError

    def _moments(self, samples: Samples) -> Moments:
        model = self.setting[0]
        return model.moments(model.project(samples))


class Network(Source):
    """A function of input and label, trained by the bound's own gradient."""

    def __init__(self, model: InvariantGP, likelihood: Bernoulli, x: Tensor, y: Tensor) -> None:
        super().__init__(model, likelihood, x, y)
        self.network = RecognitionNetwork(likelihood, x, y)

    def terms(self, rows: Rows, samples: Samples) -> Terms:
        _, likelihood, x, y = self.setting
        return likelihood.quadratic(y[rows], self.network(x[rows], y[rows])).expectation(self._moments(samples))


class Kept(Source):
    """One for each datum, from a running average of the moments seen at its earlier visits."""

    def __init__(self, model: InvariantGP, likelihood: Bernoulli, x: Tensor, y: Tensor, memory: float = 0.5) -> None:
        super().__init__(model, likelihood, x, y)
        self.memory = memory
        self.mean, self.second = torch.zeros_like(y), torch.ones_like(y)

    def terms(self, rows: Rows, samples: Samples) -> Terms:
        _, likelihood, _, y = self.setting
        local = root_second(self.second[rows], self.mean[rows])
        moments = self._moments(samples)
        if self.training:
            for kept, seen in ((self.mean, moments.mean), (self.second, moments.second)):
                kept[rows] = torch.lerp(seen.detach(), kept[rows], self.memory)
        return likelihood.quadratic(y[rows], local).expectation(moments)


class OtherGroups(Source):
    """From half of the groups for the other half, both ways: nothing is kept, nothing is learned."""

    def terms(self, rows: Rows, samples: Samples) -> Terms:
        _, likelihood, _, y = self.setting
        half = samples.pairing.blocks // 2
        parts = [Samples(points, Pairing.groups(half)) for points in samples.points.split(half, dim=1)]
        one, other = (self._moments(part) for part in parts)
        scored = [
            likelihood.quadratic(y[rows], likelihood.local(y[rows], guide)).expectation(moments)
            for guide, moments in ((one, other), (other, one))
        ]
        return 0.5 * (scored[0] + scored[1])


SOURCES: dict[str, type[Source]] = {"network": Network, "kept": Kept, "other groups": OtherGroups}


def train(config: Config, name: str, seed: int) -> dict[str, Any]:
    """One model with one source of local parameters."""
    data = digits(seed=seed)
    part = slice(config.num_train)
    x, x_test = torch.tensor(data.x_train[part]), torch.tensor(data.x_test)
    likelihood = Bernoulli()
    y, y_test = likelihood.encode(torch.tensor(data.y_train[part] % 2)), data.y_test % 2
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 2.5, 10.0
    orbit = Rotation(config.degrees)
    inducing = initial_inducing(x, orbit, kernel, config.num_inducing, "random", generator)
    model = InvariantGP(kernel, orbit, inducing)
    source = SOURCES[name](model, likelihood, x, y)

    def sample(rows: Rows) -> Samples:
        return orbit.sample(x[rows], config.num_samples, config.num_groups, "qmc", generator)

    optimizer = torch.optim.Adam([*model.parameters(), *source.parameters()], lr=config.learning_rate, betas=(0.9, 0.99))
    begin, spent, steps = time.process_time(), 0.0, 0
    while spent < 1.0:
        # Level for half of the time, then down to zero.
        optimizer.param_groups[0]["lr"] = config.learning_rate * min(1.0, 2 * (1 - spent))
        rows = torch.randint(len(x), (config.batch_size,), generator=generator)
        bound = source.terms(rows, sample(rows)).mean() * len(x) - model.kl()
        optimizer.zero_grad(set_to_none=True)
        (-bound).backward()
        optimizer.step()
        with torch.no_grad():
            model.q_sqrt.tril_()
        steps += 1
        spent = (time.process_time() - begin) / config.seconds

    source.eval()
    with torch.no_grad():
        everything = torch.arange(len(x)).split(config.batch_size)
        passes = [sum(float(source.terms(rows, sample(rows)).sum()) for rows in everything) for _ in range(8)]
        own = sum(passes) / len(passes) - float(model.kl())
    best = measure_evidence(model, likelihood, x, y, 64, 2, generator=generator)
    probs = likelihood.predict_proba(*model.predict(x_test))
    degrees = orbit.describe()["degrees"]
    return {
        "source": name,
        "seed": seed,
        "steps": steps,
        "own_bound": own / len(x),
        "best_bound": best.value / len(x),
        "stderr": best.stderr / len(x),
        "error": metrics.error_rate(probs, y_test),
        "nll": metrics.nll(probs, y_test),
        "ece": metrics.ece(probs, y_test),
        "degrees": degrees,
    }


COLUMNS = ("source", "steps", "bound a datum, its own c", "bound a datum, best c", "error", "NLL", "ECE", "angle")
HEADER = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def line(row: dict[str, Any]) -> str:
    """One row of the table, in Markdown."""
    bounds = f"{row['own_bound']:.4f} | {row['best_bound']:.4f}"
    scores = f"{row['error']:.2%} | {row['nll']:.4f} | {row['ece']:.4f}"
    return f"| {row['source']} | {row['steps']} | {bounds} | {scores} | ±{row['degrees']:.0f}° |"


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment, print its table, write ``local_parameters.json``."""
    parser = argparse.ArgumentParser(prog="python -m orbitgp.experiments.local_parameters", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for local_parameters.json (default: results)")
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    given = parser.parse_args(arguments)
    config = Config(seconds=6.0) if given.quick else Config()
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    rows = []
    for seed in range(config.seeds):
        for name in SOURCES:
            rows.append(train(config, name, seed))
            print(line(rows[-1]), flush=True)
    path = given.out / "local_parameters.json"
    files.write_json(path, {"experiment": "local_parameters", "config": asdict(config), "results": rows, **provenance()})
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
