"""Which view should g have of a digit? Candidates for the feature map, compared by exact evidence of training digits
alone.

Each candidate is learned, with affine maps, by the exact evidence of the first 6,000 digits of MNIST and 8 fixed draws.
No test digit is read: the candidate with the most evidence is the one that :mod:`experiments.exact_evidence` conditions
on all digits.

``python -m experiments views --device cuda``. ``--quick`` takes embedded digits in place of MNIST.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from jaxtyping import Float
from torch import Tensor, nn

from experiments import harness
from experiments.harness import Record, Records, Settings
from orbitgp.estimators.initialise import initial_kernel
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import Frame, OrientedGradients, SideBySide
from orbitgp.likelihoods import Dirichlet
from orbitgp.orbits.parse import make_orbit
from orbitgp.planning.rungs import Rung
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.ladder import Ladder
from orbitgp.training.records import hyperparameters

CLASSES = 10
KERNEL_ROWS = 2000  # digits that the first kernel is chosen by
QUICK: Settings = {"dataset": "digits", "num_learn": 100, "num_samples": 4, "max_seconds": 4.0}


class Pixels(nn.Module):
    """The image itself, at unit length."""

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        return F.normalize(x.flatten(1), dim=1)


def gradients(parts: float = 7, orientations: int = 8, floor: bool = False) -> OrientedGradients:
    """Oriented gradients with ``parts`` windows along each side of an image of MNIST, with or without a learned
    floor."""
    view = OrientedGradients(orientations, cell=None if parts == 7 else 28 / parts)
    view.raw_floor.requires_grad_(floor)
    return view


View = Callable[[], nn.Module | None]
FRAMED = "framed, learned floor"
VIEWS: dict[str, View] = {
    "pixels": lambda: None,
    "gradients": gradients,
    "12 directions": lambda: gradients(orientations=12),
    "9 x 9 windows": lambda: gradients(9),
    "learned floor": lambda: gradients(floor=True),
    "gradients and pixels": lambda: SideBySide(gradients(), Pixels()),
    "two scales": lambda: SideBySide(gradients(), gradients(4)),
    "two scales, learned floor": lambda: SideBySide(gradients(floor=True), gradients(4, floor=True)),
    "two fine scales, learned floor": lambda: SideBySide(gradients(9, floor=True), gradients(5, floor=True)),
    "three scales, learned floor": lambda: SideBySide(*(gradients(n, floor=True) for n in (10, 7, 4))),
    "12 directions, two scales, learned floor": lambda: SideBySide(gradients(7, 12, True), gradients(4, 12, True)),
    FRAMED: lambda: Frame(gradients(floor=True)),
    "framed pixels": Frame,
}
KERNELS = ("rbf", "matern")


@dataclass(frozen=True)
class Candidate(harness.Run):
    """One view of the digits under one kernel, learned by the exact evidence of ``num_learn`` digits."""

    view: str
    kernel: str = "rbf"
    orbit: str = "affine"
    dataset: str = "mnist"
    num_learn: int = 6_000
    num_samples: int = 8
    concentration: float = 1e-5
    max_seconds: float = 45.0
    seed: int = 0

    def name(self) -> str:
        return harness.slug(self.view, self.kernel, self.orbit)

    def measure(self, device: str) -> Record:
        data = harness.digits_of(self.dataset)
        begin = time.perf_counter()
        x = torch.from_numpy(data.x_train[: self.num_learn]).to(device)
        likelihood = Dirichlet(CLASSES, self.concentration).to(device)
        y = likelihood.encode(torch.from_numpy(data.y_train[: self.num_learn])).to(device)
        orbit = make_orbit(self.orbit).to(device)
        kernel = first_kernel(x, likelihood.start(y)[0], self.view, self.kernel, self.seed)
        model = ExactGP(kernel, orbit, x, CLASSES, seed=self.seed).to(device)
        climber = Ladder(
            model=model,
            likelihood=likelihood,
            x=x,
            y=y,
            rungs=[Rung(len(x), self.num_samples)],
            several=False,
            limit=TimeLimit(self.max_seconds),
        )
        evidence = climber.run().log_evidence + climber.draw_shift  # on draws that nothing was fitted to
        seconds = time.perf_counter() - begin
        print(f"{self.view}, {self.kernel}: {evidence:,.0f} nats, {seconds:.0f} s", flush=True)
        return {
            "data": {"name": data.name, "train": len(x)},
            "seconds": {"fit": seconds},
            "evaluations": climber.steps,
            "converged": climber.converged,
            "evidence": {"value": evidence, "stderr": climber.draw_error},
            "orbit": orbit.describe().to_dict(),
            "learned": hyperparameters(kernel, likelihood),
        }


def first_kernel(x: Float[Tensor, "rows *features"], variance: float, view: str, profile: str, seed: int) -> Kernel:
    """The kernel before learning: that of the estimators, or the same with a Matérn 5/2 profile."""
    generator = torch.Generator(x.device).manual_seed(seed)
    kernel = initial_kernel(None, x[:KERNEL_ROWS], variance, generator, VIEWS[view]())
    if profile == "matern":
        scaled = kernel if isinstance(kernel, ScaleKernel) else kernel.base_kernel
        constraint = Positive(transform=torch.exp, inv_transform=torch.log)
        matern = MaternKernel(2.5, lengthscale_constraint=constraint).double().to(x.device)
        matern.lengthscale = scaled.base_kernel.lengthscale
        scaled.base_kernel = matern
    return kernel


def plan(options: argparse.Namespace) -> list[Candidate]:
    """Every view under an RBF kernel, and some under a Matérn kernel."""
    settings = QUICK if options.quick else {}
    runs = [Candidate(view, **settings) for view in VIEWS]
    return runs + [Candidate(view, "matern", **settings) for view in ("gradients", "two scales, learned floor")]


def picked(records: Records) -> Record:
    """The candidate that the evidence chooses."""
    return max(records, key=lambda record: float(record["evidence"]["value"]))


def table(records: Records) -> str:
    """The candidates, those with the most evidence first."""
    best = picked(records)["evidence"]["value"]
    cells = [
        [
            r["settings"]["view"],
            r["settings"]["kernel"],
            f"{r['evidence']['value']:,.0f}",
            f"{r['evidence']['value'] - best:,.0f}",
            str(r["evaluations"]) + ("" if r["converged"] else " (stopped)"),
            f"{r['seconds']['fit']:.0f}",
        ]
        for r in sorted(records, key=lambda r: -r["evidence"]["value"])
    ]
    return harness.markdown(["view", "kernel", "evidence (nats)", "behind the best", "evaluations", "seconds"], cells)


EXPERIMENT = harness.Experiment("views", __doc__, plan, table, seeds=1)
