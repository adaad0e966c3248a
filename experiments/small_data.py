"""Small data: the fewer digits, the more an invariance is worth, and the bound says which one to take.

312 to 60,000 digits of MNIST, drawn with the seed, and four models of each: no orbit, learned affine maps, these composed with
learned local deformations, and learned affine maps for a g that sees oriented gradients instead of pixels. Of the four, the
one with the highest bound is the one to use: no digit is held out to choose.

``python -m experiments.small_data --device cuda --jobs 5`` writes results/small_data/*.json and results/small_data.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments import runs
from orbitgp.datasets import Dataset, mnist
from orbitgp.saving import atomic as files

SIZES = (312, 1250, 5000, 20_000, 60_000)
MODELS: dict[str, dict[str, Any]] = {
    "none": {"orbit": "none"},
    "affine": {"orbit": "affine"},
    "affine * deformation": {"orbit": "affine*deformation"},
    "affine, gradients": {"orbit": "affine", "gradients": {}},
}

FULL: dict[str, Any] = {
    "num_inducing": 1000,
    "inducing_samples": 2,
    "max_steps": 400,
    "batch_size": 800,
    "num_samples": 32,
    "options": runs.OPTIONS,
}
POINTS_PER_DIGIT = 4  # inducing points, where that is fewer than what the settings allow
QUICK_SIZES = (150, 600)
QUICK: dict[str, Any] = {
    "num_test": 500,
    "num_inducing": 100,
    "max_steps": 40,
    "batch_size": 200,
    "num_samples": 8,
    "num_predict_samples": 16,
    "options": {"posterior_samples": 4, "start_steps": 4, "orbit_warmup": 10},
}


@dataclass(frozen=True)
class SmallData(runs.Run):
    """One model of some digits of MNIST, which the seed chooses."""

    experiment = "small_data"

    num_train: int = 60_000
    num_test: int = 10_000

    def name(self) -> str:
        return f"{self.num_train}-{super().name()}"

    def data(self) -> Dataset:
        data = mnist()
        train = np.random.default_rng(self.seed).permutation(len(data.y_train))[: self.num_train]
        test = slice(self.num_test)
        x, y = data.x_train[train], data.y_train[train]
        return replace(data, x_train=x, y_train=y, x_test=data.x_test[test], y_test=data.y_test[test])


def all_runs(seeds: int, sizes: Sequence[int] = SIZES, **settings: Any) -> list[SmallData]:
    """Every model of every size with every seed."""
    fewest = [settings | {"num_inducing": min(settings["num_inducing"], POINTS_PER_DIGIT * size)} for size in sizes]
    return [
        SmallData(name, seed=seed, num_train=size, **fitting, **model)
        for size, fitting in zip(sizes, fewest, strict=True)
        for seed in range(seeds)
        for name, model in MODELS.items()
    ]


def by_size(records: Sequence[runs.Record]) -> dict[int, list[runs.Row]]:
    """The rows of each number of digits."""
    sizes = sorted({record["data"]["train"] for record in records})
    return {size: runs.rows([r for r in records if r["data"]["train"] == size]) for size in sizes}


def check(records: Sequence[runs.Record]) -> runs.Claims:
    """At every size, the model that the bound picks is a learned one, and its test error is below that of no orbit."""
    claims = {}
    for size, found in by_size(records).items():
        none = next(row for row in found if row.model == "none")
        picked = max(found, key=attrgetter("evidence"))
        claims[f"{size:,} digits: the bound picks {picked.model}, with less error than none"] = picked.error < none.error
    return claims


def table(records: Sequence[runs.Record]) -> str:
    """Test errors over the number of digits; that of the model that the bound picks in bold."""
    lines = ["| digits | " + " | ".join(MODELS) + " |", "|---" * (1 + len(MODELS)) + "|"]
    for size, found in by_size(records).items():
        picked = max(found, key=attrgetter("evidence"))
        cells = {row.model: f"{100 * row.error:.2f} %" for row in found}
        cells[picked.model] = f"**{cells[picked.model]}**"
        lines.append(f"| {size:,} | " + " | ".join(cells.get(name, "") for name in MODELS) + " |")
    return "\n".join(lines)


def figure(records: Sequence[runs.Record], path: Path) -> None:
    """Test error over the number of digits, with the choice of the bound."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    sizes = by_size(records)
    fig = Figure(figsize=(6.0, 4.2), layout="constrained")
    ax = fig.add_subplot()
    for i, name in enumerate(MODELS):
        points = [(size, row) for size, found in sizes.items() for row in found if row.model == name]
        errors = [100 * row.error for _, row in points]
        bars = [100 * row.error_stderr for _, row in points]
        ax.errorbar([size for size, _ in points], errors, bars, fmt="o-", ms=4, lw=1.3, color=f"C{i}", label=name)
    chosen = [(size, 100 * max(found, key=attrgetter("evidence")).error) for size, found in sizes.items()]
    ax.plot(*zip(*chosen, strict=True), "o", ms=12, mfc="none", mec="0.2", mew=1.3, label="picked by the bound")
    ax.set(xscale="log", yscale="log", xlabel="training digits", ylabel="test error (%)")
    ax.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    ticks = [t for t in (0.5, 1, 2, 5, 10, 20, 50) if ax.get_ylim()[0] <= t <= ax.get_ylim()[1]]
    ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    files.replace(path, lambda beside: fig.savefig(beside, dpi=130))


def main(arguments: list[str] | None = None) -> runs.Claims:
    """Train what has no record yet, print the table and what holds of it, draw the picture."""
    parser = runs.parser("small_data", __doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="draws of the digits (default: 3)")
    parser.add_argument("--sizes", type=int, nargs="+", help="numbers of digits")
    options = parser.parse_args(arguments)
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    seeds, settings = (1, QUICK) if options.quick else (options.seeds, FULL)
    todo = all_runs(seeds, sizes, **settings)
    return runs.conclude("small_data", todo, options, table, check, figure)


if __name__ == "__main__":
    main()
