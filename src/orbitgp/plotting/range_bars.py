"""Learned ranges as bars, before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.description import Change, Description, changes, with_unit
from orbitgp.plotting.figures import Colours, Theme, theme_colours, titled_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def ranges(before: Orbit | Description, after: Orbit | Description, theme: Theme = "light", title: str | None = None) -> Figure:
    """The learned ranges with their units, before (grey) and after (colour), one row a parameter.

    The line is where nothing happens: zero, or a factor of one. Parameters that differ in their axis only share a scale.
    """
    colours = theme_colours(theme)
    old, new = (orbit.describe() if isinstance(orbit, Orbit) else orbit for orbit in (before, after))
    rows = changes(old, new)
    if not rows:
        raise ValueError(f"nothing to compare between {old.title} and {new.title}: they share no parameter.")
    height = 0.34 + 0.5 * len(rows)
    figure, top = titled_figure(7.2, height, colours, title)
    grid = {"left": 0.19, "right": 0.57, "bottom": 0.26 / height * top, "top": top * (1 - 0.34 / height), "hspace": 1.0}
    panels = figure.subplots(len(rows), squeeze=False, gridspec_kw=grid)[:, 0]
    for axes, change in zip(panels, rows, strict=True):
        draw_change(axes, change, colours)
        _label_change(axes, change, colours)
        unit = change.after.unit
        label = f"{change.name} ({unit})" if unit not in ("", "°", "×") else change.name
        _text(axes, -0.05, 0.4, label, ha="right", fontsize=9.5, color=colours.ink)
        _text(axes, 1.3, 0.4, str(change.before), fontsize=8.5, color=colours.soft)
        _text(axes, 1.8, 0.4, str(change.after), fontsize=10, color=colours.accent)
    _text(panels[0], 1.3, 1.5, "start", fontsize=9, weight="bold", color=colours.soft)
    _text(panels[0], 1.8, 1.5, "learned", fontsize=9, weight="bold", color=colours.accent)
    return figure


def draw_change(axes: Axes, change: Change, colours: Colours) -> None:
    """A range before and after on a scale with a line where nothing happens; factors have a logarithmic scale."""
    low, high = change.limits
    if change.after.unit == "×":
        pad = (high / low) ** 0.06 if high > low else 1.1
        axes.set(xscale="log", xlim=(low / pad, high * pad))
    else:
        pad = 0.06 * (high - low) or 1.0
        axes.set_xlim(low - pad, high + pad)
    for quantity, y, colour, width in ((change.before, 0.75, colours.soft, 3.0), (change.after, 0.0, colours.accent, 6.5)):
        axes.plot(quantity.span, [y, y], color=colour, linewidth=width, solid_capstyle="butt")
        axes.plot(quantity.span, [y, y], "|", color=colour, markersize=width)  # seen even where a range has no width
    axes.axvline(change.after.neutral, color=colours.ink, linewidth=0.8)
    axes.set_ylim(-0.75, 1.2)


def _label_change(axes: Axes, change: Change, colours: Colours) -> None:
    """Numbers below the scale."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    (low, high), unit = change.limits, change.after.unit
    if unit == "×":
        fine = () if high / low > 1.7 else (0.8, 0.9, 1.1, 1.2)
        axes.xaxis.set_major_locator(FixedLocator([0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, *fine]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    sign = unit if unit in ("°", "×") else ""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: with_unit(f"{value:g}".replace("-", "−"), sign)))
    axes.set(yticks=[], facecolor="none")
    axes.tick_params(axis="x", colors=colours.soft, labelsize=6.5, length=2, pad=1.5)
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=colours.soft, linewidth=0.5)


def _text(axes: Axes, x: float, y: float, text: str, ha: str = "center", **style: Any) -> None:
    """Text at a place given in widths and heights of the axes."""
    axes.text(x, y, text, transform=axes.transAxes, va="center", ha=ha, **style)
