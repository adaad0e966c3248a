"""What all pictures share, and a learned range as bars: only new figures import matplotlib, which is an extra."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING

from orbitgp.orbits.description import Change

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INK, SOFT, ACCENT = "#1b1b1f", "#8a8a94", "#c2410c"  # the accent is darker than the grey, to stand out without colour


def new_axes(width: float, height: float) -> Axes:
    """Axes alone on a new figure of this size in inches, without a box around them."""
    return _without_box(_figure_class()(figsize=(width, height), layout="constrained"))


def pyplot_axes(width: float, height: float) -> Axes:
    """The same on a figure that ``pyplot`` knows, as methods called ``plot`` make it in pandas and in scikit-learn.

    A notebook shows it wherever in a cell it was made, and a script by ``plt.show()``.
    """
    _figure_class()
    from matplotlib import pyplot

    return _without_box(pyplot.figure(figsize=(width, height), layout="constrained"))


def _without_box(figure: Figure) -> Axes:
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


@cache
def _figure_class() -> type[Figure]:
    """A figure that a notebook shows as it is. Those that ``pyplot`` does not manage need ``%matplotlib inline``."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'orbitgp[plot]'.") from None

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            file = BytesIO()
            self.savefig(file, format="png", dpi=min(self.dpi, 100))
            return file.getvalue()

    return NotebookFigure


def titled_figure(width: float, height: float, title: str | None) -> tuple[Figure, float]:
    """A figure of that many inches plus its title, and the height at which the title begins."""
    extra = 0.36 if title else 0.0
    figure = _figure_class()(figsize=(width, height + extra), dpi=160, facecolor="white")
    top = height * 0.99 / (height + extra)
    if title:
        size = min(11.0, 1.7 * 72 * width / len(title))  # fits on one line
        figure.text(0.5, 1 - 0.12 / (height + extra), title, ha="center", va="top", fontsize=size, color=INK)
    return figure, top


def open_frame(axes: Axes) -> None:
    """Soft lines at the left and the bottom only."""
    axes.set_facecolor("none")
    axes.tick_params(colors=SOFT, labelsize=7)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=SOFT)


def draw_change(axes: Axes, change: Change) -> None:
    """A range before and after on a scale with a line where nothing happens; factors have a logarithmic scale."""
    low, high = change.limits
    if change.after.unit == "×":
        pad = (high / low) ** 0.06 if high > low else 1.1
        axes.set(xscale="log", xlim=(low / pad, high * pad))
    else:
        pad = 0.06 * (high - low) or 1.0
        axes.set_xlim(low - pad, high + pad)
    for quantity, y, colour, width in ((change.before, 0.75, SOFT, 3.0), (change.after, 0.0, ACCENT, 6.5)):
        axes.plot(quantity.span, [y, y], color=colour, linewidth=width, solid_capstyle="butt")
        axes.plot(quantity.span, [y, y], "|", color=colour, markersize=width)  # seen even where a range has no width
    axes.axvline(change.after.neutral, color=INK, linewidth=0.8)
    axes.set_ylim(-0.75, 1.2)
