"""Profiles: does the learner find what the evidence says?

The evidence need not peak where the data were transformed, so a learned orbit is held against its *profile*: the bound over a
grid of fixed values of one parameter of the orbit, each trained in the same way. From every start the learned model must reach
the top of it. Nothing here looks at the test set but the error that is reported.

A :class:`Problem` says what data, which orbit, which grid and which starts; the rest is here.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from tqdm.auto import tqdm

from experiments.runs import Claims, say
from orbitgp import TrainingOptions
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.orbits import Identity, Orbit
from orbitgp.report.provenance import provenance
from orbitgp.saving import atomic as files

Kind = Literal["none", "fixed", "learned"]
Result = dict[str, Any]

QUICK = {"num_inducing": 60, "max_steps": 100, "num_samples": 8}
SHORT = 0.1


@dataclass(frozen=True)
class Problem:
    """One data set and one orbit with one parameter."""

    key: ClassVar[str]  # the parameter's name in ``orbit.describe()``
    unit: ClassVar[str]
    grid: ClassVar[tuple[float, ...]]
    starts: ClassVar[tuple[float, ...]]
    likelihood: ClassVar[str] = "gaussian"
    num_inducing: ClassVar[int] = 300

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Training images and labels, test images and labels."""
        raise NotImplementedError

    def orbit(self, value: float, learn: bool) -> Orbit:
        """The orbit with its parameter at this value."""
        raise NotImplementedError

    def title(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Job:
    """One model of a problem: no orbit, one that is fixed at ``value``, or one that is learned from there."""

    problem: Problem
    kind: Kind
    value: float = 0.0
    num_inducing: int = 300
    inducing_samples: int = 1
    max_steps: int = 600
    batch_size: int = 2000
    num_samples: int = 32
    posterior_samples: int | None = None
    seed: int = 0
    device: str = "cpu"
    threads: int | None = None

    def run(self) -> Result:
        """Train the model and say how it did."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        x_train, y_train, x_test, y_test = self.problem.data(self.seed)
        names = ("num_inducing", "max_steps", "batch_size", "num_samples", "device")
        settings = {name: getattr(self, name) for name in names}
        options: dict[str, Any] = {"inducing_samples": self.inducing_samples, "posterior_samples": self.posterior_samples}
        orbit = Identity() if self.kind == "none" else self.problem.orbit(self.value, learn=self.kind == "learned")
        training = TrainingOptions(**options)
        model = InvariantGPClassifier(
            orbit, likelihood=self.problem.likelihood, random_state=self.seed, training=training, **settings
        )
        start = time.perf_counter()
        model.fit(x_train, y_train)
        return {
            "problem": type(self.problem).__name__,
            **asdict(self.problem),
            "kind": self.kind,
            "start": self.value,
            "seed": self.seed,
            "settings": settings | options,
            "evidence": model.evidence_.value,
            "stderr": model.evidence_.stderr,
            "value": float(cast(float, model.orbit_.describe().get(self.problem.key, 0.0))),
            "error": float((model.predict(x_test) != y_test).mean()),
            "seconds": time.perf_counter() - start,
            "history": [{key: record[key] for key in ("step", "bound", "orbit")} for record in model.history_[::5]],
        }


def jobs(problem: Problem, seeds: int = 1, **settings: Any) -> list[Job]:
    """No orbit, the grid of fixed values and the learned starts; none and learned once more for every further seed."""
    first = Job(problem, "none", **{"num_inducing": problem.num_inducing, **settings})
    grid = [replace(first, kind="fixed", value=value) for value in problem.grid]
    learned = [replace(first, kind="learned", value=value) for value in problem.starts]
    again = [replace(job, seed=seed) for seed in range(1, seeds) for job in (first, learned[len(learned) // 2])]
    return [first, *grid, *learned, *again]


def run_all(todo: Sequence[Job], processes: int = 1) -> list[Result]:
    """All models, one after the other or several at a time."""
    if processes == 1:
        return _collect(map(Job.run, todo), len(todo))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        results = _collect(pool.imap(Job.run, todo), len(todo))
        pool.close()
        pool.join()  # workers end by themselves and leave nothing behind
    return results


def _collect(results: Iterable[Result], count: int) -> list[Result]:
    return list(tqdm(results, total=count, unit="model", disable=None))


def summary(problem: Problem, results: Sequence[Result], short: float = 0.0) -> dict[str, Any]:
    """The top of the profile, how far each learned model is from it, and evidence and errors against no orbit for each seed.

    ``short`` is the share of what the orbit gains by which a learned model may fall short of the top: for runs of few steps.
    """
    first = [r for r in results if r["seed"] == 0]
    # No orbit at all is the left end of the profile.
    best = max((r for r in first if r["kind"] != "learned"), key=itemgetter("evidence"))
    middle = problem.starts[len(problem.starts) // 2]
    seeds = []
    for seed in sorted({r["seed"] for r in results}):
        group = [r for r in results if r["seed"] == seed]
        none = next(r for r in group if r["kind"] == "none")
        learned = next(r for r in group if r["kind"] == "learned" and r["start"] == middle)
        gain = learned["evidence"] - none["evidence"]
        seeds.append({"seed": seed, "gain": gain, "error_none": none["error"], "error_learned": learned["error"]})
    return {
        "title": problem.title(),
        "problem": asdict(problem),
        "unit": problem.unit,
        "top": best["value"],
        "top_evidence": best["evidence"],
        "learned": [
            {
                "start": r["start"],
                "value": r["value"],
                "behind": best["evidence"] - r["evidence"],
                "tolerance": max(10.0, 3 * (r["stderr"] ** 2 + best["stderr"] ** 2) ** 0.5, short * seeds[0]["gain"]),
            }
            for r in first
            if r["kind"] == "learned"
        ],
        "seeds": seeds,
    }


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """The summaries as Markdown: learned values with their bound relative to the top, means over seeds for the rest."""
    starts = " | ".join(f"from {r['start']:g}{_unit(summaries[0]['unit'])}" for r in summaries[0]["learned"])
    columns = 5 + len(summaries[0]["learned"])
    lines = [
        f"| data | top of the profile | {starts} | evidence over no orbit | error, no orbit | error, learned |",
        "|---" * columns + "|",
    ]
    for s in summaries:
        unit = _unit(s["unit"])
        learned = " | ".join(f"{r['value']:.3g}{unit} ({-r['behind']:+.1f} nats)" for r in s["learned"])
        gain, none, error = (float(np.mean([seed[k] for seed in s["seeds"]])) for k in ("gain", "error_none", "error_learned"))
        lines.append(
            f"| {s['title']} | {s['top']:.3g}{unit} ({s['top_evidence']:,.0f} nats) | {learned} "
            f"| {gain:+,.0f} nats | {100 * none:.2f} % | {100 * error:.2f} % |"
        )
    return "\n".join(lines)


def _unit(unit: str) -> str:
    return unit if unit == "°" else f" {unit}"


def figure(problems: Sequence[Problem], results: Sequence[Sequence[Result]], path: Path) -> None:
    """The profiles, one panel for each problem, with where the learned models started and where they ended."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    fig = Figure(figsize=(4.0 * len(problems), 3.9), layout="constrained")
    for i, (problem, group) in enumerate(zip(problems, results, strict=True)):
        ax = fig.add_subplot(1, len(problems), i + 1)
        unit = _unit(problem.unit)
        first = [r for r in group if r["seed"] == 0]
        profile = sorted((r["value"], r["evidence"]) for r in first if r["kind"] != "learned")
        ax.plot(*zip(*profile, strict=True), "o-", color="0.45", ms=4, lw=1.2, label="profile: fixed values")
        evidence = [e for _, e in profile]
        furthest = max(profile[-1][0], *problem.starts)
        ax.set_xlim(-0.04 * furthest, 1.04 * furthest)
        span = max(evidence) - min(evidence)
        for j, r in enumerate(r for r in first if r["kind"] == "learned"):
            height = max(evidence) + span * (0.10 + 0.07 * j)
            colour = f"C{j + 1}"
            arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (r["value"], height), (r["start"], height), arrowprops=arrow)
            label = f"learned from {r['start']:g}{unit}: {r['value']:.3g}{unit}"
            ax.plot([r["value"]], [r["evidence"]], "D", color=colour, ms=7, mfc="none", mew=1.6, label=label)
        ax.set_ylim(max(evidence) - 1.08 * span, max(evidence) + 0.32 * span)
        ax.set_title(problem.title(), fontsize=11)
        ax.set_xlabel(f"orbit: {problem.key}" + (f" ({problem.unit})" if problem.unit else ""))
        if problem.unit == "°":
            ax.set_xticks(range(0, 181, 30))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace("-", "\N{MINUS SIGN}"))
        if i == 0:
            ax.set_ylabel("evidence: bound in nats")
        # Below the curve there is room on the side where it is higher.
        left_is_higher = evidence[0] > evidence[-1]
        ax.legend(fontsize=8, loc="lower left" if left_is_higher else "lower right", frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    files.replace(path, lambda beside: fig.savefig(beside, dpi=130))


def check(summaries: Sequence[dict[str, Any]]) -> Claims:
    """From every start the learned model must reach the top of the profile, in evidence (or be better)."""
    claims = {}
    for s in summaries:
        for r in s["learned"]:
            claim = (
                f"{s['title']}, from {r['start']:g}{_unit(s['unit'])}: within {r['tolerance']:.0f} nats of the profile's top"
            )
            claims[claim] = r["behind"] <= r["tolerance"]
    return claims


def main(
    name: str,
    description: str,
    problems: Sequence[Problem],
    quick: Callable[[], Sequence[Problem]],
    arguments: list[str] | None,
    check: Callable[[Sequence[dict[str, Any]]], Claims] = check,
    full_settings: dict[str, Any] | None = None,
    quick_settings: dict[str, Any] | None = None,
) -> Claims:
    """The command line of an experiment that is a set of problems."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=description)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the record and the picture")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="models to train at a time")
    parser.add_argument("--seeds", type=int, default=3, help="splits over which test errors are averaged")
    parser.add_argument("--quick", action="store_true", help="a small version: fewer inducing points, steps and seeds")
    parser.add_argument("--draw", action="store_true", help="train nothing: table and picture of the record that is there")
    options = parser.parse_args(arguments)
    settings: dict[str, Any] = {"seeds": options.seeds, "device": options.device, **(full_settings or {})}
    if options.jobs > 1:
        settings["threads"] = 1
    if options.quick:
        problems = quick()
        settings |= QUICK | (quick_settings or {}) | {"seeds": 1}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.json"
    if options.draw:
        flat = json.loads(path.read_text(encoding="utf-8"))["results"]
    else:
        todo = [job for problem in problems for job in jobs(problem, **settings)]
        flat = run_all(todo, options.jobs)
    results = [[r for r in flat if asdict(problem).items() <= r.items()] for problem in problems]
    short = SHORT if options.quick else 0.0
    summaries = [summary(problem, group, short) for problem, group in zip(problems, results, strict=True)]
    print(table(summaries))
    if not options.draw:
        files.write_json(path, {"experiment": name, **provenance(options.device), "summaries": summaries, "results": flat})
    if find_spec("matplotlib") is not None:  # an extra; --draw makes the picture elsewhere
        figure(problems, results, options.out / f"{name}.png")
    return say(check(summaries))
