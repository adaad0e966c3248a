"""Do the same data end at the same evidence? With other threads, rows in another order, and inputs changed a little
they must.

Nothing of this changes the problem. So evidences must agree within one nat, or within the errors that they state. The
data are the first embedded digits with eight orbits, and the generated movements with two.

``python -m experiments stability --jobs 16``
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp import InvariantGPClassifier
from orbitgp.datasets import digits, movements

IMAGES = ("rotation", "translation", "scale", "shear", "affine", "deformation", "thickness", "noise")
SIGNALS = ("timeshift(interval=0.02, unit='s')", "timewarp(interval=0.02, unit='s')")
VARIANTS = ("one thread", "two threads", *(f"rows {i}" for i in range(1, 5)), *(f"inputs {i}" for i in range(1, 5)))
CHANGE = 1e-6  # standard deviation of what is added to inputs, whose values lie between 0 and 1
TOLERANCE = 1.0  # nats


@dataclass(frozen=True)
class Fit(harness.Run):
    """One fit of the first rows, in one of the variants."""

    orbit: str
    rows: int
    variant: str

    def name(self) -> str:
        return harness.slug(self.orbit, self.rows, self.variant)

    def measure(self, device: str) -> Record:
        data = movements() if self.orbit in SIGNALS else digits()
        x, y = data.x_train[: self.rows], data.y_train[: self.rows]
        kind, _, number = self.variant.partition(" ")
        rng = np.random.default_rng(int(number) if number.isdigit() else 0)
        order = rng.permutation(len(x)) if kind == "rows" else np.arange(len(x))
        x, y = x[order], y[order]
        if kind == "inputs":
            x = x + CHANGE * rng.normal(size=x.shape)
        torch.set_num_threads(2 if kind == "two" else 1)
        start = time.process_time()
        found = InvariantGPClassifier(self.orbit, random_state=0).fit(x, y).evidence_
        seconds = round(time.process_time() - start, 1)
        return {
            "value": found.value,
            "stderr": found.stderr,
            "draws": found.num_samples,
            "data": len(x),
            "seconds": seconds,
        }


def agree(records: Records) -> bool:
    """Whether all evidences of one problem agree within one nat, or within two errors of their difference."""
    return all(
        abs(one["value"] - other["value"]) <= max(TOLERANCE, 2 * np.hypot(one["stderr"], other["stderr"]))
        for one, other in combinations(records, 2)
    )


def table(records: Records) -> str:
    """For each problem: the range of its evidence, the largest error, and whether all agree."""
    cells = []
    for (orbit, _), group in harness.grouped(records, "orbit", "rows").items():
        values, draws = [r["value"] for r in group], sorted({r["draws"] or 0 for r in group})
        data = f"{group[0]['data']} {'movements' if orbit in SIGNALS else 'digits'}"
        ends, error = f"{min(values):,.1f} to {max(values):,.1f}", f"{max(r['stderr'] for r in group):.2f}"
        counts = ", ".join(map(str, draws)) if any(draws) else "none"
        cells.append(
            [data, orbit.partition("(")[0], str(len(group)), ends, error, counts, "yes" if agree(group) else "no"]
        )
    return harness.markdown(
        ["data", "orbit", "fits", "lowest to highest, nats", "largest error", "draws", "agree"], cells
    )


def check(records: Records) -> Claims:
    """The fits of each problem agree."""
    groups = harness.grouped(records, "orbit", "rows")
    return {f"{orbit.partition('(')[0]}: all fits agree": agree(group) for (orbit, _), group in groups.items()}


def plan(options: argparse.Namespace) -> list[Fit]:
    """Every orbit in every variant."""
    return [Fit(orbit, rows, variant) for orbit in options.orbits for rows in options.rows for variant in VARIANTS]


EXPERIMENT = harness.Experiment(
    "stability",
    __doc__,
    plan,
    table,
    check,
    options={
        "--rows": {"type": int, "nargs": "+", "default": [100], "help": "how many data"},
        "--orbits": {"nargs": "+", "default": [*IMAGES, *SIGNALS], "help": "only some of the orbits"},
    },
    on_gpu=False,
)
