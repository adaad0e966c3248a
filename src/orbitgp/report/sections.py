"""The sections of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Shaped

from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Change, Description, Quantity, changes
from orbitgp.report.cases import Case, Scores
from orbitgp.report.charts import bound_chart, calibration_chart, curve_chart, history_band, range_bars, ranking_chart
from orbitgp.report.html import Child, Markup, tag
from orbitgp.report.pictures import Shown
from orbitgp.training.diagnostics import Record

if TYPE_CHECKING:
    from orbitgp.comparison import Comparison, Profile


def section(title: str, *children: Child) -> Markup:
    """A section with its title."""
    return tag("section", tag("h2", title), *children)


def cards(entries: Sequence[tuple[str, str]]) -> Markup:
    """The most important numbers, as (what, value); the first is in colour."""
    made = [
        tag("div", tag("b", value), tag("span", what), class_="card main" if i == 0 else "card")
        for i, (what, value) in enumerate(entries)
    ]
    return tag("div", *made, class_="cards")


def pairs(entries: Mapping[str, str]) -> Markup:
    """A list of names and values."""
    return tag("dl", *((tag("dt", name), tag("dd", value)) for name, value in entries.items()))


def comparison_section(comparison: Comparison) -> Markup:
    """The ranking, as a chart and a table, and what was checked."""
    rows = comparison.rows
    chart = ranking_chart([r.orbit for r in rows], [r.behind for r in rows], [r.error for r in rows], comparison.tied)
    heads = (
        ("orbit", "first"),
        ("evidence", ""),
        ("behind the best", ""),
        ("still to come", "extra"),
        ("more inducing points", "extra"),
    )
    cells: list[Markup] = [tag("div", text, class_=f"head {kind}".strip()) for text, kind in heads]
    for row in rows:
        behind, *doubts = comparison.doubts(row)
        cells.append(tag("div", row.orbit, class_="first best" if row.orbit in comparison.tied else "first"))
        cells += [tag("div", text) for text in (f"{row.evidence:,.0f}", behind or "best")]
        cells += [tag("div", text, class_="extra") for text in doubts]
    checks = tag("ul", *(tag("li", line) for line in comparison.checks))
    how = (
        "Each orbit was trained from the same seeds under the same budget. Differences are taken within a seed; bars are 95 % "
        "intervals. A question mark says that an orbit cannot be told from the best."
    )
    # The verdict itself is the page's headline.
    reasons = tag("ul", *(tag("li", line) for line in comparison.sentences[1:])) if comparison.sentences[1:] else None
    right = tag("div", tag("h3", "What was checked"), checks, tag("p", how, class_="note"))
    return section(
        "Which invariance do the data support?",
        reasons,
        tag("div", tag("div", chart), right, class_="two"),
        tag("div", *cells, class_="ranking"),
    )


def profile_section(profile: Profile, learned: float | None = None) -> Markup:
    """The bound over one quantity."""
    unit = f" ({profile.unit})" if profile.unit not in ("", "°") else ""
    label = f"{profile.quantity} of {profile.orbit}{unit}, held fixed"
    chart = curve_chart(
        profile.values, profile.bounds, label, "bound, in nats", "The profile of the bound", learned, profile.unit
    )
    says = f"The bound is highest at {profile.text(profile.best)} among the values that were tried."
    if learned is not None:
        says += f" The dashed line is what was learned freely, {Quantity(learned, profile.unit)}."
    return section(f"The evidence over {profile.quantity}", tag("p", says), chart)


def samples_section(orbit: Orbit, x: Shaped[np.ndarray, "rows *features"], labels: Sequence[str], shown: Shown) -> Markup:
    """Real inputs among samples of their learned orbits."""
    grids = [shown.grid(orbit, one, label) for one, label in zip(x, labels, strict=True)]
    says = (
        "Framed: inputs from the training data. Around each, inputs that the model takes to mean the same: samples of the "
        "learned orbit, over which it averages."
        if shown.images
        else "In colour: inputs from the training data. In grey, inputs that the model takes to mean the same: samples of the "
        "learned orbit, over which it averages."
    )
    return section(
        "What the model does not care about",
        tag("p", says),
        tag("div", *grids, class_="grids" if shown.images else "grids wide"),
    )


def ranges_section(start: Description, learned: Description, history: Sequence[Record]) -> Markup | None:
    """Each quantity before and after training, in its unit, and its way over the steps."""
    rows = [_range_row(change, history) for change in changes(start, learned)]
    if not rows:
        return None
    head = tag(
        "div", *(tag("span", text) for text in ("", "at the start", "learned", "both", "over time")), class_="range head"
    )
    note = "Grey is the start, colour is what was learned; the thin line is where nothing happens."
    return section("Ranges, before and after", tag("p", note, class_="note"), head, *rows)


def _range_row(change: Change, history: Sequence[Record]) -> Markup:
    name, before, after, _ = change
    over = [(r["step"], Quantity.of(r["orbit"][name], after.unit).span) for r in history if name in r["orbit"]]
    band = None
    if len(over) > 2:
        band = history_band([step for step, _ in over], [low for _, (low, _) in over], [high for _, (_, high) in over])
    was, now = (str(q).replace(f" {q.unit}", f"\N{NO-BREAK SPACE}{q.unit}") if q.unit else str(q) for q in (before, after))
    return tag(
        "div",
        tag("span", name.replace("_", " "), class_="what"),
        tag("span", was, class_="was"),
        tag("span", now, class_="now"),
        range_bars(change),
        band,
        class_="range",
    )


def training_section(history: Sequence[Record], plain: float | None) -> Markup | None:
    """The bound over time."""
    if len(history) < 2:
        return None
    steps, bounds = [r["step"] for r in history], [r["bound"] for r in history]
    last = history[-1]
    known = ("outputscale", "lengthscale", "noise", "scale")
    hyper = {name: f"{last[name]:.4g}" for name in known if isinstance(last.get(name), float)}
    says = f"{last['step']:,} steps in {last['seconds']:,.0f} s. On the way the bound is estimated from minibatches."
    return section(
        "Training",
        tag("p", says),
        tag(
            "div",
            tag("div", bound_chart(steps, bounds, plain)),
            tag("div", tag("h3", "Hyperparameters"), pairs(hyper)),
            class_="two",
        ),
    )


def test_section(scores: Scores | None) -> Markup:
    """Error and calibration on held-out data, or how to provide some."""
    if scores is None:
        says = (
            "No held-out data were given, and none were needed to learn. To see the error here, add --test-fraction 0.2 or "
            "--test FILE."
        )
        return section("Error and calibration", tag("p", says, class_="note"))
    chart = None
    if scores.calibration is not None:
        c = scores.calibration
        chart = calibration_chart(c.said, c.happened, c.weights, c.x_label, c.y_label)
    says = (
        "Predictions for held-out data. Dots on the diagonal: probabilities that can be taken at their word; larger dots stand "
        "for more cases."
    )
    left = tag(
        "div",
        tag("p", says),
        pairs({"Test cases": f"{scores.count:,}", **scores.numbers}),
        *(tag("p", n, class_="note") for n in scores.notes),
    )
    return section("Error and calibration", tag("div", left, tag("div", chart), class_="two"))


def cases_section(scores: Scores, x: Shaped[np.ndarray, "rows *features"], orbit: Orbit, shown: Shown) -> Markup | None:
    """The most uncertain and the most wrong test cases with their orbits."""
    if not scores.uncertain:
        return None
    columns = [("Most uncertain", scores.uncertain), ("Most wrong", scores.wrong)]
    made = []
    for title, cases in columns:
        rows: list[Child] = [_case(case, x, orbit, shown) for case in cases]
        made.append(tag("div", tag("h3", title), rows or tag("p", "None: every test case was predicted right.", class_="note")))
    says = "Test cases, each with a few samples of its orbit: what the model averaged over to predict it."
    return section("Where it is unsure, and where it fails", tag("p", says), tag("div", *made, class_="two"))


def _case(case: Case, x: Shaped[np.ndarray, "rows *features"], orbit: Orbit, shown: Shown) -> Markup:
    label = f"test case {case.row}"
    text = tag(
        "p",
        "predicted ",
        tag("span", case.said, class_="wrong" if case.wrong else "right"),
        tag("br"),
        f"truth {case.truth}",
        tag("br"),
        tag("span", label, class_="note"),
    )
    return tag("div", shown.strip(orbit, x[case.row], label), text, class_="case")


def settings_section(settings: Mapping[str, str], versions: Mapping[str, str], command: str, notes: Sequence[str]) -> Markup:
    """The command, settings and versions that repeat the run."""
    # A word of the command stays whole where a line breaks.
    words = [part for word in command.split(" ") for part in (" ", tag("span", word, class_="word"))][1:]
    again = (tag("h3", "Run it again"), tag("pre", *words)) if command else ()
    noted = (tag("h3", "Notes"), tag("ul", *(tag("li", note) for note in notes))) if notes else ()
    columns = tag(
        "div",
        tag("div", tag("h3", "Settings"), pairs(settings)),
        tag("div", tag("h3", "Versions and hardware"), pairs(versions)),
        class_="two",
    )
    return section("How this was made", *again, columns, *noted)
