"""The paper's figure 1: samples of the invariance that was learned on MNIST, around some digits.

An affine orbit, or with ``--orbit affine*deformation`` its composition with local deformations. ``ORBITGP_DATA`` names the
folder that has the digits. ``python -m experiments figure1 --train 60000 --inducing 1000 --steps 1500 --device cuda`` is the
size of the paper.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from experiments import harness
from experiments.harness import Records, Settings
from experiments.mnist import MNIST
from orbitgp import plotting
from orbitgp.datasets import mnist
from orbitgp.orbits import Affine, LocalDeformation, Orbit
from orbitgp.orbits.parse import make_orbit

SHOWN = (0, 1, 4, 7)  # of the test digits
DEFORMATION = ("amplitude", "smoothness")


@dataclass(frozen=True)
class Figure1(MNIST):
    """One model of some digits of MNIST."""

    experiment = "figure1"

    num_train: int = 2000


def plan(options: argparse.Namespace) -> list[Figure1]:
    """One model for each seed; the picture shows the first."""
    settings: Settings = {"num_train": 500, "num_inducing": 60, "max_steps": 40} if options.quick else {}
    settings |= {"batch_size": options.batch, "num_samples": options.samples}
    given = {"num_train": options.train, "num_inducing": options.inducing, "max_steps": options.steps}
    settings = {"num_inducing": 200, "max_steps": 150} | settings | {k: v for k, v in given.items() if v is not None}
    return [Figure1(options.orbit, options.orbit, seed=seed, **settings) for seed in range(options.seeds)]


def table(records: Records) -> str:
    """Error, bound and what was learned."""
    cells = []
    for r in records:
        error, evidence = f"{100 * r['metrics']['error_rate']:.2f} %", f"{r['evidence']['value']:,.0f}"
        cells.append([error, evidence, harness.reach(r["orbit"])])
    return harness.markdown(["test error", "evidence (nats)", "learned"], cells)


def learned_orbit(quantities: Settings) -> Orbit:
    """The orbit whose description a record has."""
    ends = {name: tuple(value) for name, value in quantities.items() if name not in DEFORMATION}
    bent = {name: quantities[name] for name in DEFORMATION if name in quantities}
    affine = Affine(**ends)
    return affine * LocalDeformation(**bent) if bent else affine


def figure(records: Records, path: Path) -> None:
    """Samples of the orbit around some digits, and its ranges before and after learning."""
    first, settings = records[0], records[0]["settings"]
    orbit, digits = learned_orbit(first["orbit"]), mnist().x_test
    title = f"the invariance learned from {settings['num_train']:,} MNIST digits"
    around = plotting.show(orbit, [digits[i] for i in SHOWN], num_samples=24, title=title)
    harness.save_figure(around, path)
    ranges = plotting.ranges(make_orbit(settings["orbit"]), orbit, title="ranges, before and after learning")
    harness.save_figure(ranges, path.with_stem(f"{path.stem}_ranges"))


OPTIONS: dict[str, Settings] = {
    "--orbit": {"choices": ["affine", "affine*deformation"], "default": "affine"},
    "--train": {"type": int, "help": "training digits (default: 2000)"},
    "--inducing": {"type": int, "help": "inducing points (default: 200)"},
    "--steps": {"type": int, "help": "training steps (default: 150)"},
    "--batch": {"type": int, "default": 256, "help": "digits in a batch (default: 256)"},
    "--samples": {"type": int, "default": 16, "help": "orbit samples of a digit (default: 16)"},
}
EXPERIMENT = harness.Experiment("figure1", __doc__, plan, table, figure=figure, seeds=1, options=OPTIONS)
