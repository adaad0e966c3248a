"""Does the learner find what the evidence says? Embedded digits, each rotated by a random angle within ±A.

The evidence need not peak at the angle that the data were rotated by, so a learned angle is held against the *profile*: the
bound over a grid of fixed angles, each trained in the same way. From starts of 5, 45 and 150 degrees the learned model must
reach the top of it. Nothing here looks at the test set but the error that is reported.

``python -m orbitgp.experiments.rotated_digits --out results`` writes rotated_digits.json and rotated_digits.png;
``--device cuda --jobs 8`` runs several models at a time on one GPU, ``--quick`` a small version in a few minutes on two cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
from tqdm.auto import tqdm

from orbitgp.datasets import digits, rotate
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.experiments.record import provenance
from orbitgp.files import replace, write_json
from orbitgp.orbits import Identity, Orbit, Rotation

Kind = Literal["rbf", "fixed", "learned"]
GRID = (5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 75.0, 90.0, 105.0, 120.0, 150.0, 180.0)
STARTS = (5.0, 45.0, 150.0)


@dataclass(frozen=True)
class Config:
    """One model: data rotated within ±``rotated``; an orbit that is none, fixed at ``angle``, or learned from there."""

    rotated: float
    kind: Kind
    angle: float = 0.0
    num_inducing: int = 300
    max_steps: int = 600
    batch_size: int = 2000
    num_samples: int = 32
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None

    def orbit(self) -> Orbit:
        return Identity() if self.kind == "rbf" else Rotation(self.angle, learn=self.kind == "learned")


def run(config: Config) -> dict[str, Any]:
    """Train one model and say how it did."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = digits(seed=config.seed)
    x_train, _ = rotate(data.x_train, config.rotated, seed=2 * config.seed)
    x_test, _ = rotate(data.x_test, config.rotated, seed=2 * config.seed + 1)
    model = InvariantGPClassifier(
        config.orbit(),
        likelihood="gaussian",
        num_inducing=config.num_inducing,
        max_steps=config.max_steps,
        batch_size=config.batch_size,
        num_samples=config.num_samples,
        random_state=config.seed,
        device=config.device,
    )
    start = time.perf_counter()
    model.fit(x_train, data.y_train)
    seconds = time.perf_counter() - start
    return {
        "config": asdict(config),
        "evidence": model.evidence_.value,
        "stderr": model.evidence_.stderr,
        "degrees": model.orbit_.describe().get("degrees"),
        "error": float((model.predict(x_test) != data.y_test).mean()),
        "seconds": seconds,
        "history": [{key: record[key] for key in ("step", "bound", "orbit")} for record in model.history_[::5]],
    }


def configs(rotated: list[float], seeds: int = 1, grid: tuple[float, ...] = GRID, **settings: Any) -> list[Config]:
    """For every A: no orbit, the grid of fixed angles, the learned starts; and more seeds, for the test errors."""
    models: list[tuple[Kind, float]] = [("rbf", 0.0), *(("fixed", angle) for angle in grid)]
    models += [("learned", angle) for angle in STARTS]
    again: list[tuple[Kind, float]] = [("rbf", 0.0), ("learned", STARTS[1])]
    return [
        Config(a, kind, angle, seed=seed, **settings)
        for a in rotated
        for seed in range(seeds)
        for kind, angle in (models if seed == 0 else again)
    ]


def run_all(jobs: list[Config], processes: int = 1) -> list[dict[str, Any]]:
    """All models, one after the other or several at a time."""
    with tqdm(total=len(jobs), unit="model", disable=None) as bar:

        def collect(results: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
            collected = []
            for result in results:
                collected.append(result)
                bar.update()
            return collected

        if processes == 1:
            return collect(map(run, jobs))
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            return collect(pool.imap(run, jobs))


def summaries(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each A: the top of the profile, how far each learned model is from it, and the errors of all seeds."""
    rows = []
    for rotated in sorted({r["config"]["rotated"] for r in results}):
        group = [r for r in results if r["config"]["rotated"] == rotated]
        first = [r for r in group if r["config"]["seed"] == 0]
        # No rotation at all is the left end of the profile.
        best = max((r for r in first if r["config"]["kind"] != "learned"), key=itemgetter("evidence"))
        rows.append(
            {
                "rotated": rotated,
                "profile_angle": best["degrees"] or 0.0,
                "profile_evidence": best["evidence"],
                "learned": [
                    {
                        "start": r["config"]["angle"],
                        "degrees": r["degrees"],
                        "behind": best["evidence"] - r["evidence"],
                        "tolerance": max(10.0, 3 * (r["stderr"] ** 2 + best["stderr"] ** 2) ** 0.5),
                    }
                    for r in first
                    if r["config"]["kind"] == "learned"
                ],
                "seeds": [
                    {"seed": seed, **_against_rbf([r for r in group if r["config"]["seed"] == seed])}
                    for seed in sorted({r["config"]["seed"] for r in group})
                ],
            }
        )
    return rows


def _against_rbf(group: list[dict[str, Any]]) -> dict[str, float]:
    """No orbit against the learned one of the same seed: what the evidence gains, and both test errors."""
    rbf = next(r for r in group if r["config"]["kind"] == "rbf")
    learned = next(r for r in group if r["config"]["kind"] == "learned" and r["config"]["angle"] == STARTS[1])
    gain = learned["evidence"] - rbf["evidence"]
    return {"evidence_gain": gain, "rbf_error": rbf["error"], "learned_error": learned["error"]}


def table(rows: list[dict[str, Any]]) -> str:
    """The summaries as Markdown."""
    starts = " | ".join(f"learned from {start:.0f}°" for start in STARTS)
    lines = [
        f"| rotated within | top of the profile | {starts} | evidence over RBF | error, RBF | error, learned |",
        "|---|---|" + "---|" * len(STARTS) + "---|---|---|",
    ]
    for row in rows:
        learned = " | ".join(f"{r['degrees']:.1f}° ({-r['behind']:+.1f} nats)" for r in row["learned"])
        seeds = row["seeds"]
        mean = {key: sum(s[key] for s in seeds) / len(seeds) for key in ("evidence_gain", "rbf_error", "learned_error")}
        lines.append(
            f"| ±{row['rotated']:.0f}° | {row['profile_angle']:.0f}° ({row['profile_evidence']:,.0f} nats) | {learned} "
            f"| {mean['evidence_gain']:+,.0f} nats | {100 * mean['rbf_error']:.2f} % | {100 * mean['learned_error']:.2f} % |"
        )
    return "\n".join(lines)


def figure(results: list[dict[str, Any]], path: Path) -> None:
    """The profiles, one panel for each A, with where the learned models started and ended."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    rotations = sorted({r["config"]["rotated"] for r in results})
    results = [r for r in results if r["config"]["seed"] == 0]
    fig = Figure(figsize=(4.0 * len(rotations), 3.9), layout="constrained")
    for i, rotated in enumerate(rotations):
        ax = fig.add_subplot(1, len(rotations), i + 1)
        group = [r for r in results if r["config"]["rotated"] == rotated]
        profile = sorted((r["degrees"] or 0.0, r["evidence"]) for r in group if r["config"]["kind"] != "learned")
        top = max(evidence for _, evidence in profile)
        ax.plot(*zip(*profile, strict=True), "o-", color="0.45", ms=4, lw=1.2, label="profile: fixed angles")
        ax.axvspan(0, rotated, color="tab:blue", alpha=0.08, lw=0)
        span = top - min(evidence for _, evidence in profile)
        for j, r in enumerate(r for r in group if r["config"]["kind"] == "learned"):
            height = top + span * (0.10 + 0.07 * j)
            colour = f"C{j + 1}"
            ax.annotate(
                "", (r["degrees"], height), (r["config"]["angle"], height), arrowprops={"arrowstyle": "->", "color": colour}
            )
            label = f"learned from {r['config']['angle']:.0f}°: {r['degrees']:.0f}°"
            ax.plot([r["degrees"]], [r["evidence"]], "D", color=colour, ms=7, mfc="none", mew=1.6, label=label)
        ax.set_ylim(top - 1.08 * span, top + 0.32 * span)
        ax.set_title(f"digits rotated within ±{rotated:.0f}°")
        ax.set_xlabel("orbit: rotations within ± this angle")
        ax.set_xticks(range(0, 181, 30), [f"{t}°" for t in range(0, 181, 30)])
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}"))
        if i == 0:
            ax.set_ylabel("evidence: bound in nats")
        ax.legend(fontsize=8, loc="lower center" if rotated else "lower left", frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    replace(path, lambda beside: fig.savefig(beside, dpi=130))


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment, print its table, write the record and the picture."""
    parser = argparse.ArgumentParser(prog="python -m orbitgp.experiments.rotated_digits", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the record and the picture")
    parser.add_argument("--rotated", type=float, nargs="+", default=[0.0, 30.0, 60.0, 90.0], help="A, in degrees")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models to train at a time")
    parser.add_argument("--seeds", type=int, default=1, help="splits and rotations over which test errors are averaged")
    parser.add_argument("--quick", action="store_true", help="a small version: fewer angles, inducing points and steps")
    options = parser.parse_args(arguments)
    settings: dict[str, Any] = {"seeds": options.seeds, "device": options.device}
    if options.jobs > 1:
        settings["threads"] = 1
    if options.quick:
        settings |= {"grid": GRID[3::2], "num_inducing": 100, "max_steps": 100, "num_samples": 16}
    options.out.mkdir(parents=True, exist_ok=True)
    results = run_all(configs(options.rotated, **settings), options.jobs)
    rows = summaries(results)
    print(table(rows))
    record = {"experiment": "rotated_digits", **provenance(options.device), "summaries": rows, "results": results}
    write_json(options.out / "rotated_digits.json", record)
    figure(results, options.out / "rotated_digits.png")


if __name__ == "__main__":
    main()
