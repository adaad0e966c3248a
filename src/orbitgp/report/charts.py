"""Charts as SVG. They scale, follow the page's light or dark theme, and need no script.

matplotlib draws them in the colours of paper. :func:`svg` replaces these by the variables of the page's style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from scipy.ndimage import uniform_filter1d

from orbitgp.orbits.description import Change, Quantity
from orbitgp.plotting.figures import PAPER, new_axes
from orbitgp.plotting.range_bars import draw_change
from orbitgp.report.cases import Calibration
from orbitgp.report.fitted import Compared, Profiled
from orbitgp.training.records import Record, climbs_with_orbit

# Text stays text, names with dollar signs are no formulas, and the same chart gives the same page.
STYLE = {"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "orbitgp", "font.size": 9.5}

_ENOUGH = 3  # records, to draw
_VARIABLES = {PAPER.accent: "var(--accent)", PAPER.soft: "var(--soft)", PAPER.ink: "var(--ink)", "#000000": "var(--soft)"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
SIZE = 4.7, 3.0  # of every chart, so that all have the same letters
_SMALL = 0.39  # the height of a chart within a line


def svg(axes: Axes, title: str, kind: str = "chart") -> Markup:
    """The figure of these axes as an element of the page, with a title for screen readers."""
    file = StringIO()
    axes.figure.savefig(file, format="svg", transparent=True, metadata=_NO_METADATA)  # type: ignore[union-attr]
    drawing = file.getvalue().partition("<svg")[2]
    for colour, variable in _VARIABLES.items():
        drawing = drawing.replace(f": {colour}", f": {variable}")
    # Namespaces are for files, and nobody refers to numbered parts, which would be the same in every chart.
    drawing = re.sub(r' xmlns(:xlink)?="[^"]*"| id="[\w.]+_\d+"', "", drawing)
    opening, _, inside = drawing.partition(">")
    return Markup(f'<svg role="img" class="{kind}"{opening}><title>{escape(title)}</title>{inside}')


def bound_chart(history: Sequence[Record], some: str = "", plain: float | int | None = None, exact: bool = False) -> Markup:
    """The bound over training, without its steep first rise. The dashed line is the bound without invariance.

    An exact evidence has no noise, but climbs from several starts, one after the other: dots, and no smoothed line. ``history``
    and ``some`` are what :func:`of_the_same_data` gives.
    """
    plain = None if some else plain
    lowest = sorted(record["bound"] for record in history)[len(history) // 12]
    shown = [record for record in history if record["bound"] >= lowest]
    steps, bounds = [record["step"] for record in shown], [record["bound"] for record in shown]
    axes = new_axes(*SIZE)
    if exact:
        colours = [PAPER.soft if record.get("without_orbit") else PAPER.accent for record in shown]
        axes.scatter(steps, bounds, s=9, c=colours)
    else:
        axes.plot(steps, bounds, color=PAPER.accent, linewidth=1, alpha=0.6)
        smooth = uniform_filter1d(np.array(bounds, dtype=float), size=1 + 2 * (len(bounds) // 20), mode="nearest")
        axes.plot(steps, smooth, color=PAPER.accent, linewidth=2.2)
    if plain is not None:
        axes.axhline(plain, color=PAPER.soft, linewidth=1.2, linestyle="--", label="no invariance, at its end")
        axes.figure.legend(loc="outside upper right", frameon=False)
    label = "evidence, in nats" if exact else "bound on the evidence, in nats"
    axes.set(xlabel="steps", ylabel=f"{label}, {some}" if some else label, xlim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    return svg(axes, "The bound over the steps of training")


def of_the_same_data(history: Sequence[Record]) -> tuple[list[Record], str]:
    """The records with as many data as have enough of them, and which data these are, where they are not all.

    Starts and the first climbs may see some of the data only, and evidences of different data do not compare.
    """
    by_rows = {rows: [r for r in history if r.get("rows") == rows] for rows in {r.get("rows") for r in history}}
    most = sorted(by_rows, key=lambda rows: (len(by_rows[rows]) >= _ENOUGH, rows or 0))[-1]
    every = history[-1].get("rows")
    return by_rows[most], "" if most == every else f"of {most:,} of {every:,} data"


def ranking_chart(comparison: Compared) -> Markup:
    """The evidence of each orbit against the best."""
    return svg(comparison.plot(new_axes(SIZE[0], 1 + 0.45 * len(comparison.rows))), "Evidence of each orbit against the best")


def profile_chart(profile: Profiled, learned: float | None = None) -> Markup:
    """The bound over one quantity. The dashed line is what was learned freely."""
    axes = profile.plot(new_axes(*SIZE))
    if learned is not None:
        axes.axvline(learned, color=PAPER.soft, linewidth=1.2, linestyle="--")
    return svg(axes, "The profile of the bound")


def calibration_chart(calibration: Calibration) -> Markup:
    """How often predictions came true against their probability. Honest probabilities lie on the diagonal."""
    said, happened, weights = calibration.said, calibration.happened, np.array(calibration.weights)
    axes = new_axes(SIZE[0], 4.2)
    axes.plot([0, 1], [0, 1], color=PAPER.soft, linewidth=1.2, linestyle="--")
    if weights.max() == weights.min():  # dots of different weight are not points of one curve
        axes.plot(said, happened, color=PAPER.accent, linewidth=1, alpha=0.6)
    axes.scatter(said, happened, s=20 + 180 * weights / weights.max(), color=PAPER.accent, clip_on=False)
    axes.set(xlabel=calibration.x_label, ylabel=calibration.y_label, xlim=(0, 1.03), ylim=(0, 1.03))
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    return svg(axes, "Calibration")


def range_bars(change: Change) -> Markup:
    """A range before (grey) and after (colour) on a scale with a line where nothing happens."""
    axes = new_axes(2.8, _SMALL)
    draw_change(axes, change, PAPER)
    axes.set_axis_off()
    return svg(axes, "before and after", "ranges")


def history_band(change: Change, history: Sequence[Record]) -> Markup | None:
    """How a range moved in training; time runs to the right. A run has a piece for each start, with gaps between them; the
    last piece, in colour, goes on from the best."""
    climbs = climbs_with_orbit([record for record in history if change.name in record["orbit"]])
    if sum(len(climb) for climb in climbs) < 3:
        return None
    axes = new_axes(1.7, _SMALL)
    gap = 0.04 * sum(climb[-1]["step"] - climb[0]["step"] for climb in climbs) or 1.0
    begin = 0.0
    for climb in climbs:
        spans = np.array([Quantity.of(record["orbit"][change.name], change.after.unit).span for record in climb])
        places = begin + np.array([record["step"] - climb[0]["step"] for record in climb], dtype=float)
        colour = PAPER.accent if climb is climbs[-1] else PAPER.soft
        axes.fill_between(places, spans[:, 0], spans[:, 1], color=colour, alpha=0.75)
        begin = places[-1] + gap
    axes.set_axis_off()
    return svg(axes, "over the steps of training", "ranges narrow")
