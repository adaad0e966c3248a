"""MNIST, ten classes, Gaussian likelihood on class indicators (figure 4 of the paper): error and evidence of learned
orbits.

Five orbits, three seeds each: none, rotations, affine maps, local deformations (the paper's four) and the composition
of the last two. Then, to see how far it goes, that composition with more time, with a likelihood made for classes, and
with the thickness of strokes too; and orbits of a g that sees oriented gradients instead of pixels. The seed decides
inducing points, minibatches and orbit samples; the data are the standard split.

``python -m experiments mnist --device cuda --jobs 5``
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from experiments import harness
from experiments.harness import Claims, Records, Settings
from orbitgp.datasets import Dataset, mnist

LONGER, DIRICHLET = "affine * deformation, longer", "affine * deformation, Dirichlet"
THICKNESS = "affine * deformation * thickness, Dirichlet"
GRADIENTS = {
    f"{orbit}, gradients, Dirichlet": {"orbit": orbit.replace(" ", ""), "likelihood": "dirichlet", "gradients": {}}
    for orbit in ("none", "affine", "affine * deformation")
}
MODELS: dict[str, Settings] = {
    "none": {"orbit": "none"},
    "rotation": {"orbit": "rotation(10)"},
    "affine": {"orbit": "affine"},
    "deformation": {"orbit": "deformation"},
    "affine * deformation": {"orbit": "affine*deformation"},
    LONGER: {"orbit": "affine*deformation"},
    DIRICHLET: {"orbit": "affine*deformation", "likelihood": "dirichlet"},
    THICKNESS: {"orbit": "affine*deformation*thickness", "likelihood": "dirichlet"},
    **GRADIENTS,
}
GOALS = {
    1.0: "",
    0.84: " (the best of a Gaussian process)",
    0.56: " (support vectors, invariance by hand)",
}
PAPER = {"none": (2.15, 0.03), "rotation": (2.08, 0.06), "affine": (1.35, 0.07), "deformation": (1.47, 0.05)}

FULL: Settings = harness.FULL | {"num_inducing": 2000}
# Without an orbit a step is many times cheaper: the same time buys more of them.
FULL_OF = {
    "none": {"inducing_samples": 1, "max_steps": 3000, "batch_size": 2000},
    LONGER: {"inducing_samples": 8, "max_steps": 1200},
    DIRICHLET: {"inducing_samples": 8, "max_steps": 600},
    THICKNESS: {"inducing_samples": 8, "max_steps": 1000},
    **{name: {"inducing_samples": 8, "max_steps": 800} for name in GRADIENTS},
    "none, gradients, Dirichlet": {"inducing_samples": 1, "max_steps": 1500},
}
QUICK: Settings = harness.QUICK | {"num_train": 1000, "num_predict_samples": 32}


@dataclass(frozen=True)
class MNIST(harness.Training):
    """One model of MNIST, or of its first ``num_train`` digits."""

    num_train: int = 60_000
    num_test: int = 10_000

    def data(self) -> Dataset:
        return harness.cut(mnist(), slice(self.num_train), slice(self.num_test))


def all_runs(
    seeds: int = 3, models: Iterable[str] = MODELS, of: dict[str, Settings] | None = None, **settings: Any
) -> list[MNIST]:
    """Every model with every seed; ``of`` are settings of single models."""
    each = {name: {**settings, **(of or {}).get(name, {}), **MODELS[name]} for name in models}
    return [MNIST(name, seed=seed, **each[name]) for seed in range(seeds) for name in models]


def check(records: Records) -> Claims:
    """What the experiment is to show; the paper's errors are asked of the full size alone."""
    found = harness.rows(records)
    none, pixels = (next((row for row in found if row.model == name), None) for name in ("none", DIRICHLET))
    wrong = harness.disagreements(found)
    claims = {
        "the bound ranks the models as the test error does" + "".join(f"; not {a} / {b}" for a, b in wrong): not wrong
    }
    for row in found:
        if none is not None and row is not none and row.likelihood == none.likelihood:
            claims[f"{row.model}: more evidence than none"] = row.evidence > none.evidence
        if pixels is not None and row.model in GRADIENTS:
            claims[f"{row.model}: more evidence than {pixels.model}"] = row.evidence > pixels.evidence
        if row.model in PAPER and row.train == 60_000:
            mean, stderr = PAPER[row.model]
            claims[f"{row.model}: error at most the paper's {mean} + {stderr} %"] = 100 * row.error <= mean + stderr
    of_classes = [row for row in found if row.likelihood == "dirichlet" and row.train == 60_000]
    if of_classes:
        picked = max(of_classes, key=attrgetter("evidence"))
        name = f"{picked.model} (the bound's choice)"
        claims |= {
            f"{name}: error at most {goal} %{whose}": 100 * picked.error <= goal for goal, whose in GOALS.items()
        }
    return claims


def paper(model: str) -> str:
    """The paper's error of a model, if it has one."""
    return "{:.2f} ± {:.2f} %".format(*PAPER[model]) if model in PAPER else ""


def table(records: Records) -> str:
    """Our figures, the paper's beside them."""
    found = harness.rows(records)
    return harness.table(found, {"the paper": {name: paper(name) for name in PAPER}, "learned": harness.learned(found)})


def plan(options: argparse.Namespace) -> list[MNIST]:
    """The models that were asked for."""
    settings = harness.chosen(options, FULL | {"of": FULL_OF}, QUICK)
    return all_runs(options.seeds, options.models, **settings)


EXPERIMENT = harness.Experiment(
    "mnist", __doc__, plan, table, check, models=list(MODELS), options=harness.model_options(MODELS)
)
