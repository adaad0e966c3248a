"""Profiles: does the learner find what the evidence says?

The evidence need not peak where the data were transformed, so a learned orbit is held against its *profile*: the
evidence over a grid of fixed values of one quantity of the orbit, with everything else at its best. All models are
fitted without options, once by the inference that the library chooses, which is exact for data as few as these, and
once by sparse inference. The exact profile judges both: from every start, the quantity must end where that is at its
top. The bound of sparse inference stands beside it. Nothing here looks at the test set except the error that is
reported.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from experiments import harness
from experiments.default_fit import DefaultFit
from experiments.harness import Claims, Record, Records
from orbitgp.estimators import InvariantGPClassifier

INFERENCES = ("auto", "sparse")
NATS = 3.0  # by which the exact profile, where a learned orbit ends, may be below its top
SHORT = 0.1  # of a small version, with its coarse grid: the same as a share of what the orbit gains


@dataclass(frozen=True)
class Profiled(DefaultFit):
    """One model of a profile: without an orbit, with one that is fixed at ``start``, or with one that is learned from
    there."""

    key: ClassVar[str]  # the quantity's name in ``orbit.describe()``
    unit: ClassVar[str]

    model: str = "none"
    orbit: str = "none"
    likelihood: str = "gaussian"
    inference: str = "auto"
    kind: str = "none"  # or fixed, or learned
    start: float = 0.0

    def at(self, value: float, learn: bool) -> str:
        """The orbit with its quantity at this value."""
        raise NotImplementedError

    def title(self) -> str:
        """The data, in words."""
        raise NotImplementedError

    def name(self) -> str:
        return harness.slug(self.title(), self.inference, self.kind, f"{self.start:g}", self.seed)

    def estimator(self, device: str) -> InvariantGPClassifier:
        return super().estimator(device).set_params(inference=self.inference)

    def measure(self, device: str) -> Record:
        title = self.title() + (f", seed {self.seed}" if self.seed else "")
        record = super().measure(device)
        if self.inference == "auto" and record["inference"] != "exact":
            raise RuntimeError(f"there is no exact profile of {title}: the library chose sparse inference here.")
        record["profile"] = {"title": title, "key": self.key, "unit": self.unit}
        if self.inference == "sparse" and self.kind == "learned":
            record["exact"] = self.exact_evidence_at(value(record), device)
        return record

    def exact_evidence_at(self, place: float, device: str) -> float:
        """The exact profile at this value of the orbit's quantity."""
        fixed = replace(self, inference="auto", kind="fixed", start=place, orbit=self.at(place, learn=False))
        return float(fixed.measure(device)["evidence"]["value"])


class Profile(NamedTuple):
    """A problem, the values of the grid, and those that orbits are learned from."""

    problem: Profiled
    grid: Sequence[float]
    starts: Sequence[float]

    def runs(self, inference: str, seed: int) -> list[Profiled]:
        """No orbit, the grid and the learned starts."""
        none = replace(self.problem, inference=inference, seed=seed)
        values = [("fixed", value) for value in self.grid] + [("learned", value) for value in self.starts]
        return [none] + [
            replace(none, model=f"{kind}, {value:g}", kind=kind, start=value, orbit=none.at(value, kind == "learned"))
            for kind, value in values
        ]


@dataclass(frozen=True)
class Reached:
    """What was learned from one start, and by how many nats it is behind the top of its profile, with the error of
    both.

    Of sparse inference also by how many nats the exact profile, where this orbit ended, is behind its own top.
    """

    start: float
    value: float
    behind: float
    error: float = 0.0
    exact_behind: float | None = None


@dataclass(frozen=True)
class Summary:
    """One profile of one problem, with what was learned; the gain and the errors are those of the middle start."""

    title: str
    inference: str
    unit: str
    curve: np.ndarray  # values and evidence
    learned: list[Reached]
    gain: float
    gain_error: float
    tolerance: float
    error_none: float
    error_learned: float

    @property
    def top(self) -> tuple[float, float]:
        """The value of the highest evidence, and that evidence."""
        value, evidence = max(self.curve.T.tolist(), key=lambda point: point[1])
        return value, evidence

    @property
    def highest(self) -> float:
        """The highest evidence: that of the grid, or one that was learned."""
        return self.top[1] - min(0.0, *(reached.behind for reached in self.learned))


def by_title(records: Records) -> dict[str, dict[str, Summary]]:
    """The summaries of each problem, exact before sparse."""
    titles = dict.fromkeys(record["profile"]["title"] for record in records)
    found: dict[str, dict[str, Summary]] = {title: {} for title in titles}
    for title, summaries in found.items():
        for inference in ("exact", "sparse"):
            group = [r for r in records if r["profile"]["title"] == title and inference == inference_of(r)]
            if group:
                summaries[inference] = _summary(group, inference, summaries.get("exact"))
    return found


def inference_of(record: Record) -> str:
    """Exact or sparse."""
    return "sparse" if record["settings"]["inference"] == "sparse" else "exact"


def _summary(group: list[Record], inference: str, exact: Summary | None) -> Summary:
    """The profile of these records, with what was learned; held against the exact one, if these are sparse."""
    ordered = sorted(group, key=lambda r: r["settings"]["start"])
    none, fixed, learned = (
        [r for r in ordered if r["settings"]["kind"] == kind] for kind in ("none", "fixed", "learned")
    )
    # No orbit at all is the left end of the profile.
    curve = np.array([(value(r), r["evidence"]["value"]) for r in [*none, *fixed]]).T
    middle = learned[len(learned) // 2]
    gain = middle["evidence"]["value"] - none[0]["evidence"]["value"]
    top = max([*none, *fixed], key=lambda r: r["evidence"]["value"])

    def reached(r: Record) -> Reached:
        there = None if exact is None or r.get("exact") is None else exact.highest - r["exact"]
        behind = top["evidence"]["value"] - r["evidence"]["value"]
        return Reached(r["settings"]["start"], value(r), behind, _error(top, r), there)

    small = none[0]["settings"]["max_seconds"] is not None
    tolerance = max(NATS, SHORT * (exact.gain if exact else gain)) if small else NATS
    errors = [r["metrics"]["error_rate"] for r in (none[0], middle)]
    about, ends = none[0]["profile"], [reached(r) for r in learned]
    gained = gain, _error(none[0], middle)
    return Summary(about["title"], inference, about["unit"], curve, ends, *gained, tolerance, *errors)


def _error(one: Record, other: Record) -> float:
    """The error that draws leave in the difference of two evidences, as if their draws were independent."""
    return math.hypot(*(r["evidence"]["stderr"] for r in (one, other)))


def value(record: Record) -> float:
    """The quantity of the orbit, zero without one."""
    return float(record["orbit"].get(record["profile"]["key"], 0.0))


def table(records: Records) -> str:
    """A table for each set of starts, with a line for each profile.

    Behind a learned value stands its evidence over the top of its profile, and the exact profile there over its own
    top.
    """
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for s in (summary for each in by_title(records).values() for summary in each.values()):
        (place, top), unit = s.top, _unit(s.unit)
        ends = [harness.with_error(-r.behind, r.error, 1, "+") for r in s.learned]
        learned = [f"{r.value:.3g}{unit} ({end} nats{_exact(r)})" for r, end in zip(s.learned, ends, strict=True)]
        errors = [f"{100 * error:.2f} %" for error in (s.error_none, s.error_learned)]
        starts = tuple(f"from {r.start:g}{unit}" for r in s.learned)
        gain = f"{harness.with_error(s.gain, s.gain_error, sign='+')} nats"
        cells = [s.title, s.inference, f"{place:.3g}{unit} ({top:,.0f} nats)", *learned, gain, *errors]
        tables.setdefault(starts, []).append(cells)
    before, after = (
        ["data", "inference", "top of the profile"],
        ["evidence over no orbit", "error, no orbit", "error, learned"],
    )
    return "\n\n".join(harness.markdown([*before, *starts, *after], lines) for starts, lines in tables.items())


def grid(records: Records) -> str:
    """Evidence and test error at each fixed value, and at what was learned."""
    unit = _unit(records[0]["profile"]["unit"])
    words = {"none": "none", "fixed": "±{}", "learned": "learned: ±{}"}
    ordered = sorted(records, key=lambda r: (list(words).index(r["settings"]["kind"]), r["settings"]["start"]))
    cells = [
        [
            words[r["settings"]["kind"]].format(f"{value(r):.3g}{unit}"),
            harness.with_error(r["evidence"]["value"], r["evidence"]["stderr"]),
            f"{100 * r['metrics']['error_rate']:.2f} %",
        ]
        for r in ordered
    ]
    return harness.markdown(["orbit", "evidence (nats)", "test error"], cells)


def _exact(reached: Reached) -> str:
    return "" if reached.exact_behind is None else f"; exact {-reached.exact_behind:+,.1f}"


def _unit(unit: str) -> str:
    return unit if unit == "°" else f" {unit}"


def check(records: Records) -> Claims:
    """From every start, the learned orbit must end where the exact profile is at its top (or be better)."""
    claims: Claims = {}
    for summaries in by_title(records).values():
        for s in summaries.values() if "exact" in summaries else ():
            above = s.highest - s.top[1]
            own = [r.behind + above for r in s.learned] if s.inference == "exact" else []
            behind = own + [r.exact_behind for r in s.learned if r.exact_behind is not None]
            name = f"{s.title}, {s.inference}: from every start"
            if behind:
                claims[f"{name} at most {s.tolerance:.0f} nats below the top of the exact profile"] = (
                    max(behind) <= s.tolerance
                )
    return claims


def figure(records: Records, path: Path) -> None:
    """The profiles, one panel for each problem, with where the learned models started and where they ended."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    groups = by_title(records)
    key = records[0]["profile"]["key"]
    fig = Figure(figsize=(4.0 * len(groups), 3.9), layout="constrained")
    for i, (title, summaries) in enumerate(groups.items()):
        ax = fig.add_subplot(1, len(groups), i + 1)
        first = next(iter(summaries.values()))
        unit = _unit(first.unit)
        evidence = np.concatenate([s.curve[1] for s in summaries.values()])
        low, top = evidence.min(), evidence.max()
        for s, style, marker in zip(summaries.values(), ("o-", "o:"), ("D", "s"), strict=False):
            ax.plot(*s.curve, style, color="0.45", ms=4, lw=1.2, label=f"{s.inference}: fixed values")
            for j, r in enumerate(s.learned):
                ax.plot([r.value], [s.top[1] - r.behind], marker, color=f"C{j + 1}", ms=7, mfc="none", mew=1.6)
        for j, r in enumerate(first.learned):
            colour, height = f"C{j + 1}", top + (top - low) * (0.10 + 0.07 * j)
            arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (r.value, height), (r.start, height), arrowprops=arrow)
            ends = " and ".join(f"{s.learned[j].value:.3g}{unit} ({s.inference})" for s in summaries.values())
            ax.plot([], [], "D", color=colour, ms=7, mfc="none", mew=1.6, label=f"from {r.start:g}{unit}: {ends}")
        learned = [r for s in summaries.values() for r in s.learned]
        furthest = max(first.curve[0].max(), *(max(r.start, r.value) for r in learned))
        ax.set(xlim=(-0.04 * furthest, 1.04 * furthest), ylim=(low - 0.45 * (top - low), top + 0.32 * (top - low)))
        ax.set_title(title, fontsize=11)
        ax.set_xlabel(f"orbit: {key} ({first.unit})")
        if first.unit == "°":
            ax.set_xticks(range(0, 181, 30))
        ax.yaxis.set_major_formatter(lambda nats, _: f"{nats:,.0f}".replace("-", "\N{MINUS SIGN}"))
        if i == 0:
            ax.set_ylabel("evidence, or its bound, in nats")
        ax.legend(fontsize=8, loc="lower right", frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    harness.save_figure(fig, path)


def experiment(name: str, description: str, full: Sequence[Profile], quick: Sequence[Profile]) -> harness.Experiment:
    """The experiment that makes these profiles."""

    def plan(options: argparse.Namespace) -> list[Profiled]:
        chosen = [(p, i) for p in (quick if options.quick else full) for i in options.inference]
        return [
            run
            for seed in range(options.seeds)
            for profile, inference in chosen
            for run in profile.runs(inference, seed)
        ]

    options = {"--inference": {"nargs": "+", "choices": INFERENCES, "default": INFERENCES, "help": "only one of them"}}
    return harness.Experiment(name, description, plan, table, check, figure, seeds=1, options=options)
