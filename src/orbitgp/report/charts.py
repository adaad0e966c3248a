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

from orbitgp.comparison import Profile
from orbitgp.orbits.description import Change, Quantity
from orbitgp.plotting import PAPER, draw_change, new_axes
from orbitgp.report.cases import Calibration
from orbitgp.training.diagnostics import Record

# Text stays text, names with dollar signs are no formulas, and the same chart gives the same page.
STYLE = {"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "orbitgp", "font.size": 9.5}

_VARIABLES = {PAPER.accent: "var(--accent)", PAPER.soft: "var(--soft)", PAPER.ink: "var(--ink)", "#000000": "var(--soft)"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_SIZE = 6.4, 3.4
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


def bound_chart(history: Sequence[Record], plain: float | int | None = None, exact: bool = False) -> Markup:
    """The bound, or the exact evidence, over training, without its steep first rise. The dashed line has no invariance."""
    lowest = sorted(record["bound"] for record in history)[len(history) // 12]
    shown = [record for record in history if record["bound"] >= lowest]
    steps, bounds = [record["step"] for record in shown], [record["bound"] for record in shown]
    axes = new_axes(*_SIZE)
    axes.plot(steps, bounds, color=PAPER.accent, linewidth=1, alpha=0.6)
    width = 1 if exact else 1 + 2 * (len(bounds) // 20)  # exact values have no noise
    smooth = uniform_filter1d(np.array(bounds, dtype=float), size=width, mode="nearest")
    axes.plot(steps, smooth, color=PAPER.accent, linewidth=2.2)
    if plain is not None:
        axes.axhline(plain, color=PAPER.soft, linewidth=1.2, linestyle="--")
        axes.text(0.01, plain, "no invariance, at its end", transform=axes.get_yaxis_transform(), va="bottom")
    axes.set(xlabel="steps", ylabel="evidence, in nats" if exact else "bound on the evidence, in nats", xlim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.10g}")
    return svg(axes, "The bound over the steps of training")


def profile_chart(profile: Profile, learned: float | None = None) -> Markup:
    """The bound over one quantity. The dashed line is what was learned freely."""
    axes = profile.plot()
    if learned is not None:
        axes.axvline(learned, color=PAPER.soft, linewidth=1.2, linestyle="--")
    return svg(axes, "The profile of the bound")


def calibration_chart(calibration: Calibration) -> Markup:
    """How often predictions came true against their probability. Honest probabilities lie on the diagonal."""
    said, happened, weights = calibration.said, calibration.happened, np.array(calibration.weights)
    axes = new_axes(4.7, 4.2)
    axes.plot([0, 1], [0, 1], color=PAPER.soft, linewidth=1.2, linestyle="--")
    if weights.max() == weights.min():  # dots of different weight are not points of one curve
        axes.plot(said, happened, color=PAPER.accent, linewidth=1, alpha=0.6)
    axes.scatter(said, happened, s=20 + 180 * weights / weights.max(), color=PAPER.accent, clip_on=False)
    axes.set(xlabel=calibration.x_label, ylabel=calibration.y_label, xlim=(0, 1), ylim=(0, 1))
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
    """How a range moved in training; time runs to the right."""
    records = [record for record in history if change.name in record["orbit"]]
    if len(records) < 3:
        return None
    spans = np.array([Quantity.of(record["orbit"][change.name], change.after.unit).span for record in records])
    axes = new_axes(1.7, _SMALL)
    axes.fill_between([record["step"] for record in records], spans[:, 0], spans[:, 1], color=PAPER.accent, alpha=0.75)
    axes.set_axis_off()
    return svg(axes, "over the steps of training", "ranges narrow")
