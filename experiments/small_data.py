"""Small data: the fewer digits, the more an invariance is worth, and the bound says which one to take.

312 to 60,000 digits of MNIST, drawn with the seed, and four models of each: no orbit, learned affine maps, these
composed with learned local deformations, and learned affine maps for a g that sees oriented gradients instead of
pixels. Of the four, the one with the highest bound is the one to use: no digit is held out to choose.

``python -m experiments small-data --device cuda --jobs 6``
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments import harness
from experiments.harness import Claims, Records, Settings
from orbitgp.datasets import Dataset, mnist

SIZES = (312, 1250, 5000, 20_000, 60_000)
MODELS: dict[str, Settings] = {
    "none": {"orbit": "none"},
    "affine": {"orbit": "affine"},
    "affine * deformation": {"orbit": "affine*deformation"},
    "affine, gradients": {"orbit": "affine", "gradients": {}},
}

FULL: Settings = harness.FULL | {"max_steps": 400}
POINTS_PER_DIGIT = 4  # inducing points, where that is fewer than what the settings allow
QUICK_SIZES = (150, 600)
EXACT = harness.RESULTS / "defaults.jsonl"


@dataclass(frozen=True)
class SmallData(harness.Training):
    """One model of some digits of MNIST, which the seed chooses."""

    num_train: int = 60_000
    num_test: int = 10_000

    def name(self) -> str:
        return f"{self.num_train}-{super().name()}"

    def data(self) -> Dataset:
        data = mnist()
        train = np.random.default_rng(self.seed).permutation(len(data.y_train))[: self.num_train]
        return harness.cut(data, train, slice(self.num_test))


def all_runs(seeds: int, sizes: Sequence[int] = SIZES, **settings: Any) -> list[SmallData]:
    """Every model of every size with every seed."""
    fewest = [settings | {"num_inducing": min(settings["num_inducing"], POINTS_PER_DIGIT * size)} for size in sizes]
    return [
        SmallData(name, seed=seed, num_train=size, **fitting, **model)
        for size, fitting in zip(sizes, fewest, strict=True)
        for seed in range(seeds)
        for name, model in MODELS.items()
    ]


def by_size(records: Records) -> dict[int, list[harness.Row]]:
    """The rows of each number of digits."""
    sizes = sorted({record["data"]["train"] for record in records})
    return {size: harness.rows([r for r in records if r["data"]["train"] == size]) for size in sizes}


def check(records: Records) -> Claims:
    """At every size, the model that the bound picks is a learned one, and its test error is below that of no orbit."""
    claims: Claims = {}
    for size, found in by_size(records).items():
        claims |= harness.picks_less_error(f"{size:,} digits", found)
    return claims


def table(records: Records) -> str:
    """Test errors over the number of digits; that of the model that the bound picks in bold."""
    lines = []
    for size, found in by_size(records).items():
        picked = max(found, key=attrgetter("evidence"))
        cells = {row.model: f"{100 * row.error:.2f} %" for row in found}
        cells[picked.model] = f"**{cells[picked.model]}**"
        lines.append([f"{size:,}", *(cells.get(name, "") for name in MODELS)])
    return harness.markdown(["digits", *MODELS], lines)


def exact_errors(sizes: Collection[int]) -> dict[tuple[str, int], float]:
    """Test errors of the same models of the same digits with the defaults, from :mod:`experiments.defaults`; what is
    known."""
    known = [
        r for r in harness.load(EXACT).values() if r["settings"]["part"] == "sizes" and r["data"]["train"] in sizes
    ]
    return {(r["settings"]["model"], r["data"]["train"]): r["metrics"]["error_rate"] for r in known}


def figure(records: Records, path: Path) -> None:
    """Test error over the number of digits, with the choice of the bound; the defaults, which are exact, beside it."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    sizes = by_size(records)
    exact = exact_errors(sizes)
    fig = Figure(figsize=(6.0, 4.2), layout="constrained")
    ax = fig.add_subplot()
    for i, name in enumerate(MODELS):
        points = [(size, row) for size, found in sizes.items() for row in found if row.model == name]
        errors = [100 * row.error for _, row in points]
        bars = [100 * row.error_stderr for _, row in points]
        ax.errorbar([size for size, _ in points], errors, bars, fmt="o-", ms=4, lw=1.3, color=f"C{i}", label=name)
        gapped = [100 * exact.get((name, size), np.nan) for size in sizes]  # no line across a size that is missing
        ax.plot(list(sizes), gapped, "D--", ms=4, lw=1.1, mfc="white", color=f"C{i}")
    chosen = [(size, 100 * max(found, key=attrgetter("evidence")).error) for size, found in sizes.items()]
    ax.plot(*zip(*chosen, strict=True), "o", ms=12, mfc="none", mec="0.2", mew=1.3, label="picked by the bound")
    if exact:
        ax.plot([], [], "D--", ms=4, lw=1.1, mfc="white", color="0.4", label="defaults, exact (one seed)")
    ax.set(xscale="log", yscale="log", xlabel="training digits", ylabel="test error (%)")
    ax.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8)
    harness.save_figure(fig, path)


def plan(options: argparse.Namespace) -> list[SmallData]:
    """Every model of the sizes that were asked for."""
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    return all_runs(options.seeds, sizes, **(harness.QUICK if options.quick else FULL))


EXPERIMENT = harness.Experiment(
    "small_data",
    __doc__,
    plan,
    table,
    check,
    figure,
    models=list(MODELS),
    options={"--sizes": {"type": int, "nargs": "+", "help": "numbers of digits"}},
)
