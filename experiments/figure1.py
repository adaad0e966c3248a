"""The paper's figure 1: samples of the invariance that was learned on all of MNIST, around some digits.

Nothing is trained here: the learned affine maps are those of the record of :mod:`experiments.exact_evidence`.
``ORBITGP_DATA`` names the folder that has the digits.

``python -m experiments figure1``
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from experiments import harness
from experiments.harness import Settings
from orbitgp import plotting
from orbitgp.datasets import mnist
from orbitgp.orbits import Affine
from orbitgp.orbits.description import changes
from orbitgp.plotting.figures import draw_change

SHOWN = (0, 1, 4, 7)  # of the test digits
RECORD = "mnist-affine-0"


def learned_orbit(quantities: Settings) -> Affine:
    """The orbit whose description a record has."""
    given: Settings = {name: tuple(ends) for name, ends in quantities.items()}
    return Affine(**given)


def drawn_ranges(orbit: Affine) -> Figure:
    """The ranges before (grey) and after learning (colour), one row a parameter, on the scales of the report."""
    rows = changes(Affine().describe(), orbit.describe())
    figure = Figure(figsize=(7.2, 0.5 * len(rows)), layout="constrained")
    for axes, change in zip(figure.subplots(len(rows)), rows, strict=True):
        draw_change(axes, change)
        axes.set_axis_off()
        axes.set_title(
            f"{change.name}: {change.before} at first, {change.after} learned", loc="left", fontsize=8, pad=1
        )
    return figure


def main(arguments: list[str]) -> None:
    """Samples of the orbit around some digits, and its ranges before and after learning."""
    parser = argparse.ArgumentParser(prog="python -m experiments figure1", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the record and for the pictures")
    out = parser.parse_args(arguments).out
    record = harness.load(out / "exact_evidence.jsonl").get(RECORD)
    if record is None:
        raise SystemExit(f"there is no record of {RECORD} in {out}: run python -m experiments exact-evidence first.")
    orbit, digits = learned_orbit(record["orbit"]), mnist().x_test
    title = f"the invariance learned from {record['data']['train']:,} MNIST digits"
    around = plotting.show(orbit, [digits[i] for i in SHOWN], num_samples=24, title=title)
    harness.save_figure(around, out / "figure1.png")
    harness.save_figure(drawn_ranges(orbit), out / "figure1_ranges.png")
