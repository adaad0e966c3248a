"""Profiles: does the learner find what the evidence says?

The evidence need not peak where the data were transformed, so a learned orbit is held against its *profile*: the bound over a
grid of fixed values of one quantity of the orbit, each trained in the same way. From every start the learned model must reach
the top of it. Nothing here looks at the test set except the error that is reported.

A :class:`Profiled` run says which data, which orbit, which grid and which starts; the rest is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from experiments import harness
from experiments.harness import Claims, Record, Records

QUICK = {"num_inducing": 60, "max_steps": 100, "num_samples": 8}
SHORT = 0.1  # with few steps: the share of the orbit's gain by which a learned model may fall short of the top


@dataclass(frozen=True)
class Profiled(harness.Training):
    """One model of a profile: without an orbit, with one that is fixed at ``start``, or with one that is learned from there."""

    key: ClassVar[str]  # the quantity's name in ``orbit.describe()``
    unit: ClassVar[str]
    grid: ClassVar[tuple[float, ...]]
    starts: ClassVar[tuple[float, ...]]
    short: ClassVar[float] = 0.0

    model: str = "none"
    num_inducing: int = 300
    batch_size: int | None = 2000
    kind: str = "none"  # or fixed, or learned
    start: float = 0.0

    def at(self, value: float, learn: bool) -> str:
        """The orbit with its quantity at this value."""
        raise NotImplementedError

    def title(self) -> str:
        """The data, in words."""
        raise NotImplementedError

    def name(self) -> str:
        return harness.slug(self.title(), self.kind, f"{self.start:g}", self.seed)

    def measure(self, device: str) -> Record:
        about = {"title": self.title(), "key": self.key, "unit": self.unit, "short": self.short}
        return super().measure(device) | {"profile": about}


def plan(problems: Iterable[Profiled], seeds: int = 1, **settings: Any) -> list[Profiled]:
    """Of each problem: no orbit, the grid and the learned starts; no orbit and the middle start once more for further seeds."""
    runs = []
    for problem in problems:
        none = replace(problem, **settings)

        def with_orbit(kind: str, value: float, none: Profiled = none) -> Profiled:
            orbit = none.at(value, learn=kind == "learned")
            return replace(none, model=f"{kind}, {value:g}", kind=kind, start=value, orbit=orbit)

        learned = [with_orbit("learned", value) for value in problem.starts]
        runs += [none, *(with_orbit("fixed", value) for value in problem.grid), *learned]
        runs += [replace(run, seed=seed) for seed in range(1, seeds) for run in (none, learned[len(learned) // 2])]
    return runs


@dataclass(frozen=True)
class Reached:
    """What was learned from one start: the quantity, and how far its bound is from the top of the profile."""

    start: float
    value: float
    behind: float
    tolerance: float


@dataclass(frozen=True)
class Summary:
    """The top of a profile and what was learned; means over seeds of evidence and errors against no orbit."""

    title: str
    unit: str
    settings: dict[str, Any]
    top: float
    top_evidence: float
    learned: list[Reached]
    gains: list[float]
    errors_none: list[float]
    errors_learned: list[float]


def by_title(records: Records) -> dict[str, list[Record]]:
    """The records of each problem."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["profile"]["title"], []).append(record)
    return groups


def summaries(records: Records) -> list[Summary]:
    """One summary for each problem."""
    return [_summary(group) for group in by_title(records).values()]


def _summary(group: list[Record]) -> Summary:
    about, settings = group[0]["profile"], group[0]["settings"]
    none, learned = (_of(group, kind) for kind in ("none", "learned"))
    first = [r for r in learned if r["settings"]["seed"] == 0]
    middle = first[len(first) // 2]["settings"]["start"]
    again = [r for r in learned if r["settings"]["start"] == middle]
    gains = [b["evidence"]["value"] - a["evidence"]["value"] for a, b in zip(none, again, strict=True)]
    # No orbit at all is the left end of the profile.
    best = max([none[0], *_of(group, "fixed")], key=lambda r: r["evidence"]["value"])

    def reached(r: Record) -> Reached:
        behind = best["evidence"]["value"] - r["evidence"]["value"]
        noise = (r["evidence"]["stderr"] ** 2 + best["evidence"]["stderr"] ** 2) ** 0.5
        return Reached(r["settings"]["start"], value(r), behind, max(10.0, 3 * noise, about["short"] * gains[0]))

    errors = ([r["metrics"]["error_rate"] for r in some] for some in (none, again))
    top = (value(best), best["evidence"]["value"])
    return Summary(about["title"], about["unit"], settings, *top, [reached(r) for r in first], gains, *errors)


def _of(group: list[Record], kind: str) -> list[Record]:
    chosen = [r for r in group if r["settings"]["kind"] == kind]
    return sorted(chosen, key=lambda r: (r["settings"]["seed"], r["settings"]["start"]))


def value(record: Record) -> float:
    """The quantity of the orbit, zero without one."""
    return float(record["orbit"].get(record["profile"]["key"], 0.0))


def table(records: Records) -> str:
    """The summaries as Markdown: learned values with their bound relative to the top, means over seeds for the rest."""
    found = summaries(records)
    starts = [f"from {r.start:g}{_unit(found[0].unit)}" for r in found[0].learned]
    titles = ["data", "top of the profile", *starts, "evidence over no orbit", "error, no orbit", "error, learned"]
    cells = []
    for s in found:
        learned = [f"{r.value:.3g}{_unit(s.unit)} ({-r.behind:+.1f} nats)" for r in s.learned]
        gain, none, error = (harness.mean(values)[0] for values in (s.gains, s.errors_none, s.errors_learned))
        top = f"{s.top:.3g}{_unit(s.unit)} ({s.top_evidence:,.0f} nats)"
        cells.append([s.title, top, *learned, f"{gain:+,.0f} nats", f"{100 * none:.2f} %", f"{100 * error:.2f} %"])
    return harness.markdown(titles, cells)


def _unit(unit: str) -> str:
    return unit if unit == "°" else f" {unit}"


def check(records: Records) -> Claims:
    """From every start the learned model must reach the top of the profile, in evidence (or be better)."""
    return {
        f"{s.title}, from {r.start:g}{_unit(s.unit)}: within {r.tolerance:.0f} nats of the profile's top": r.behind
        <= r.tolerance
        for s in summaries(records)
        for r in s.learned
    }


def figure(records: Records, path: Path, evidence_label: str = "evidence: bound in nats") -> None:
    """The profiles, one panel for each problem, with where the learned models started and where they ended."""
    from matplotlib.figure import Figure  # an extra: everything but the picture works without it

    groups = by_title(records)
    fig = Figure(figsize=(4.0 * len(groups), 3.9), layout="constrained")
    for i, (title, group) in enumerate(groups.items()):
        ax = fig.add_subplot(1, len(groups), i + 1)
        unit, key = group[0]["profile"]["unit"], group[0]["profile"]["key"]
        learned = [r for r in _of(group, "learned") if r["settings"]["seed"] == 0]
        fixed = [_of(group, "none")[0], *_of(group, "fixed")]
        profile = sorted((value(r), r["evidence"]["value"]) for r in fixed)
        ax.plot(*zip(*profile, strict=True), "o-", color="0.45", ms=4, lw=1.2, label="profile: fixed values")
        evidence = [e for _, e in profile]
        furthest = max(profile[-1][0], *(r["settings"]["start"] for r in learned))
        ax.set_xlim(-0.04 * furthest, 1.04 * furthest)
        span = max(evidence) - min(evidence)
        for j, r in enumerate(learned):
            start, height = r["settings"]["start"], max(evidence) + span * (0.10 + 0.07 * j)
            colour = f"C{j + 1}"
            arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (value(r), height), (start, height), arrowprops=arrow)
            label = f"learned from {start:g}{_unit(unit)}: {value(r):.3g}{_unit(unit)}"
            ax.plot([value(r)], [r["evidence"]["value"]], "D", color=colour, ms=7, mfc="none", mew=1.6, label=label)
        ax.set_ylim(max(evidence) - 1.08 * span, max(evidence) + 0.32 * span)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel(f"orbit: {key} ({unit})")
        if unit == "°":
            ax.set_xticks(range(0, 181, 30))
        ax.yaxis.set_major_formatter(lambda nats, _: f"{nats:,.0f}".replace("-", "\N{MINUS SIGN}"))
        if i == 0:
            ax.set_ylabel(evidence_label)
        # Below the curve there is room on the side where it is higher.
        left_is_higher = evidence[0] > evidence[-1]
        ax.legend(fontsize=8, loc="lower left" if left_is_higher else "lower right", frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    harness.save_figure(fig, path)
