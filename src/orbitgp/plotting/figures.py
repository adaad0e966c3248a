"""What all pictures share, and learned ranges as bars: only new figures import matplotlib, which is an extra."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.description import Change, Description, changes, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Theme = Literal["light", "dark"]


class Colours(NamedTuple):
    """The colours of a theme."""

    paper: str
    ink: str
    soft: str
    accent: str


# The accent is darker than both greys on paper and lighter on slides, so that it stands out without colour, too.
PAPER = Colours(paper="#ffffff", ink="#1b1b1f", soft="#8a8a94", accent="#c2410c")
SLIDE = Colours(paper="#16171b", ink="#ececf0", soft="#80828d", accent="#fb923c")
_THEMES = {"light": PAPER, "dark": SLIDE}


def theme_colours(theme: str) -> Colours:
    """The colours of a theme by its name."""
    if theme not in _THEMES:
        raise ValueError(f"theme must be one of {', '.join(_THEMES)}, got {theme!r}.")
    return _THEMES[theme]


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
    """A figure that a notebook shows as it stands. Those that ``pyplot`` does not manage need ``%matplotlib inline``."""
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


def titled_figure(width: float, height: float, colours: Colours, title: str | None) -> tuple[Figure, float]:
    """A figure of that many inches plus its title, and the height at which the title begins."""
    extra = 0.36 if title else 0.0
    figure = _figure_class()(figsize=(width, height + extra), dpi=160, facecolor=colours.paper)
    top = height * 0.99 / (height + extra)
    if title:
        size = min(11.0, 1.7 * 72 * width / len(title))  # fits on one line
        figure.text(0.5, 1 - 0.12 / (height + extra), title, ha="center", va="top", fontsize=size, color=colours.ink)
    return figure, top


def open_frame(axes: Axes, colours: Colours) -> None:
    """Soft lines at the left and the bottom only."""
    axes.set_facecolor("none")
    axes.tick_params(colors=colours.soft, labelsize=7)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=colours.soft)


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
