"""Charts as SVG, and images as PNG, as elements of a page. They follow its light or dark theme, and need no script.

matplotlib draws charts in the colours of paper. :func:`svg` replaces these by the variables of the page's style sheet.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO, StringIO
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Shaped
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from PIL import Image
from scipy.ndimage import uniform_filter1d

from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Change
from orbitgp.plotting.figures import ACCENT, INK, SOFT, draw_change, new_axes
from orbitgp.plotting.samples import MOST_NAMES, GreyScale, draw, draw_vector, signal_axis
from orbitgp.report.cases import Calibration
from orbitgp.training.records import Record

# Text stays text, names with dollar signs are no formulas, and the same chart gives the same page.
STYLE = {"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "orbitgp", "font.size": 9.5}

_ENOUGH = 3  # records, to draw
_VARIABLES = {ACCENT: "var(--accent)", SOFT: "var(--soft)", INK: "var(--ink)", "#000000": "var(--soft)"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_SIZE = 4.7, 3.0  # of every chart, so that all have the same letters
_MOST_LETTERS = 18  # of the name of a column, to leave room for its value


@runtime_checkable
class Compared(Protocol):
    """Orbits that were ranked by their evidence. The template of the page reads its table, too."""

    sentences: list[str]
    settled: bool

    @property
    def best(self) -> str: ...

    @property
    def rows(self) -> Sequence[object]: ...

    def over_plain(self) -> float | None: ...

    def plot(self, ax: Axes | None = None) -> Axes: ...


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


def bound_chart(
    history: Sequence[Record], some: str = "", plain: float | int | None = None, exact: bool = False
) -> Markup:
    """The bound over training, without its steep first rise. The dashed line is the bound without invariance.

    An exact evidence has no noise, but climbs from several starts, one after the other: dots, and no smoothed line.
    ``history`` and ``some`` are what :func:`of_the_same_data` gives.
    """
    plain = None if some else plain
    lowest = sorted(record["bound"] for record in history)[len(history) // 12]
    shown = [record for record in history if record["bound"] >= lowest]
    # Between evaluations of all data there are those of some, which are not shown: a gap would say nothing.
    steps = [i if exact else record["step"] for i, record in enumerate(shown, 1)]
    bounds = [record["bound"] for record in shown]
    axes = new_axes(*_SIZE)
    if exact:
        colours = [SOFT if record.get("without_orbit") else ACCENT for record in shown]
        axes.scatter(steps, bounds, s=9, c=colours)
    else:
        axes.plot(steps, bounds, color=ACCENT, linewidth=1, alpha=0.6)
        smooth = uniform_filter1d(np.array(bounds, dtype=float), size=1 + 2 * (len(bounds) // 20), mode="nearest")
        axes.plot(steps, smooth, color=ACCENT, linewidth=2.2)
    if plain is not None:
        axes.axhline(plain, color=SOFT, linewidth=1.2, linestyle="--", label="no invariance, at its end")
        axes.figure.legend(loc="outside upper right", frameon=False)
    label = "evidence, in nats" if exact else "bound on the evidence, in nats"
    axes.set(xlabel="evaluations" if exact else "steps", ylabel=f"{label}, {some}" if some else label)
    axes.yaxis.set_major_formatter("{x:,.10g}")
    return svg(axes, "The bound over the steps of training")


def of_the_same_data(history: Sequence[Record]) -> tuple[list[Record], str]:
    """The records with as many data as have enough of them, and which data these are, where they are not all.

    Starts and the first climbs may see some of the data only, and evidences of different data do not compare.
    """
    by_rows = {rows: [r for r in history if r.get("rows") == rows] for rows in {r.get("rows") for r in history}}
    most = max(by_rows, key=lambda rows: (len(by_rows[rows]) >= _ENOUGH, rows or 0))
    every = history[-1].get("rows")
    return by_rows[most], "" if most == every else f"of {most:,} of {every:,} data"


def ranking_chart(comparison: Compared) -> Markup:
    """The evidence of each orbit against the best."""
    axes = new_axes(_SIZE[0], 1 + 0.45 * len(comparison.rows))
    return svg(comparison.plot(axes), "Evidence of each orbit against the best")


def calibration_chart(calibration: Calibration) -> Markup:
    """How often predictions came true against their probability. Honest probabilities lie on the diagonal."""
    said, happened, weights = calibration.said, calibration.happened, np.array(calibration.weights)
    axes = new_axes(_SIZE[0], 4.2)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1.2, linestyle="--")
    if weights.max() == weights.min():  # dots of different weight are not points of one curve
        axes.plot(said, happened, color=ACCENT, linewidth=1, alpha=0.6)
    axes.scatter(said, happened, s=20 + 180 * weights / weights.max(), color=ACCENT, clip_on=False)
    axes.set(xlabel=calibration.x_label, ylabel=calibration.y_label, xlim=(0, 1.03), ylim=(0, 1.03))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    return svg(axes, "Calibration")


def range_bars(change: Change) -> Markup:
    """A range before (grey) and after (colour) on a scale with a line where nothing happens."""
    axes = new_axes(2.8, 0.39)
    draw_change(axes, change)
    axes.set_axis_off()
    return svg(axes, "before and after", "ranges")


Input = Float[np.ndarray, "*features"]


class Pictures:
    """One way to show all inputs of a data set: the same grey scale, and no negatives, in light and dark.

    Attributes:
        images: whether inputs are images; else they are vectors or signals.
        axis: of signals, the distance between samples, and its unit.
        inverted: whether colours were inverted when the images were read: they are shown as they were.
        columns, scales: the names of the columns of a table, and the (shift, unit) of each if it was standardised.
    """

    def __init__(
        self,
        orbit: Orbit,
        x: Shaped[np.ndarray, "rows *features"],
        columns: Sequence[str] = (),
        inverted: bool = False,
        scales: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.orbit = orbit
        self.axis = signal_axis(orbit)
        self.columns, self.scales = columns, scales
        self.images = x.ndim > 2 and self.axis is None
        self.inverted = inverted and self.images
        self.scale = GreyScale(x[:1000])

    def address(self, image: Input) -> str:
        """An image as a PNG in a data: address, so that a page needs no other file."""
        file = BytesIO()
        shown = self.scale.pixels(image)
        pixels = np.round(255 * (1 - shown if self.inverted else shown)).astype(np.uint8)
        Image.fromarray(pixels).save(file, "PNG", optimize=True)
        return "data:image/png;base64," + b64encode(file.getvalue()).decode("ascii")

    def samples(self, x: Input, count: int) -> Shaped[np.ndarray, "samples *features"]:
        """Samples of the orbit of one input, in the order of their first base draw."""
        return np.asarray(draw(self.orbit, torch.as_tensor(np.asarray(x, dtype=np.float32)), count, seed=0).numpy())

    def chart(self, x: Input, count: int, label: str, height: float = 1.7, whole: bool = False) -> Markup:
        """A vector or signal among the samples of its orbit. Small charts are drawn small: letters keep their size."""
        is_row = bool(self.columns) and self.axis is None and len(x) > 2
        if is_row:  # each column has a line, so that no name lies on another
            height = 0.5 + 0.2 * min(len(x), MOST_NAMES)
        axes = new_axes((4.2 if x.shape[-1] <= 2 else _SIZE[0]) if whole else 2.9, height)
        draw_vector(axes, x, self.samples(x, count), self.axis, self._column_names(x))
        if is_row:
            axes.set_xlabel("standardised value" if self.scales else "value")
        if is_row or not whole:
            axes.locator_params("x", nbins=6 if whole else 4)
        if not (whole or is_row):
            axes.locator_params("y", nbins=3)
        return svg(axes, f"{label} and samples of its orbit")

    def _column_names(self, x: Input) -> Sequence[str]:
        """The columns of a table; those that were standardised with the value of this row, in its own unit."""
        if not self.scales or len(x) <= 2:
            return self.columns
        values = [shift + unit * float(value) for value, (shift, unit) in zip(x, self.scales, strict=True)]
        short = [name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…" for name in self.columns]
        return [f"{name} {four_figures(value)}" for name, value in zip(short, values, strict=True)]


def four_figures(value: float) -> str:
    """As people write numbers, if that is not too long: 0.1235, 41,200."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
