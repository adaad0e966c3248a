"""Pictures of orbits: what an orbit does to an input, how it grew while it was learned, and its ranges before and after.

Every function returns a ``matplotlib.figure.Figure`` and touches no global state. Save it with ``figure.savefig(...)``, or let
a notebook show it: it does so where the figure is the last line of a cell. ``theme`` is ``"light"`` (paper) or ``"dark"``
(slides). matplotlib is the extra ``orbitgp[plot]``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.description import Change, Description, changes, with_unit
from orbitgp.orbits.ranges import Range
from orbitgp.orbits.sampling import base_draws
from orbitgp.orbits.signals.base import SAMPLES, SignalOrbit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Theme = Literal["light", "dark"]


@dataclass(frozen=True)
class Colours:
    """The colours of a theme."""

    paper: str
    ink: str
    soft: str
    accent: str


# The accent is darker than both greys on paper and lighter on slides, so that it stands out without colour, too.
PAPER = Colours(paper="#ffffff", ink="#1b1b1f", soft="#8a8a94", accent="#c2410c")
SLIDE = Colours(paper="#16171b", ink="#ececf0", soft="#80828d", accent="#fb923c")
_THEMES = {"light": PAPER, "dark": SLIDE}
_OF_TIME = {"ns", "µs", "us", "ms", "s", "sec", "seconds", "min", "minutes", "h", "hours", "d", "days", "months", "years"}
MOST_NAMES = 16  # of the columns of a table, for which there is room


def show(
    orbit: Orbit, x: Any, num_samples: int = 24, seed: int = 0, theme: Theme = "light", title: str | None = None
) -> Figure:
    """Samples of the orbit around the original, which is the framed one in the middle: figure 1 of the paper.

    ``x`` is one input, an image (H, W) or (C, H, W) or a signal (T,) or (C, T), or a list of several, for a panel each. Samples
    are in the order of their first base draw: an angle grows from the top left to the bottom right, through the original.
    """
    colours, inputs = _theme(theme), _inputs(x)
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, got {num_samples}.")
    drawn = [draw(orbit, one, num_samples, seed) for one in inputs]
    if inputs[0].ndim == 1 or signal_axis(orbit) is not None:
        return _signals(orbit, inputs, drawn, colours, title)
    count = len(drawn[0])  # a finite orbit may have fewer
    cells = count + 1
    columns = max(3, int(cells**0.5)) | 1  # odd, so that there is a middle
    rows = ceil(cells / columns) | 1
    cell, gap = 0.8, 0.5
    ratio = inputs[0].shape[-2] / inputs[0].shape[-1]
    width = len(inputs) * columns * cell + (len(inputs) - 1) * gap
    figure, top = _figure(width, rows * cell * ratio, colours, title)
    panels = figure.add_gridspec(1, len(inputs), left=0.01, right=0.99, bottom=0.01, top=top, wspace=gap / (columns * cell))
    middle = (rows // 2) * columns + columns // 2
    for panel, (image, others) in enumerate(zip(inputs, drawn, strict=True)):
        grid = panels[0, panel].subgridspec(rows, columns, wspace=0.06, hspace=0.06)
        scale = GreyScale(image.numpy())
        half = count // 2
        for place, picture in enumerate([*others[:half], image, *others[half:]], start=middle - half):
            axes = figure.add_subplot(grid[place // columns, place % columns])
            frame, width = (colours.accent, 2.4) if place == middle else (colours.soft, 0.4)
            scale.draw(axes, picture, frame, width)
    return figure


def film(
    orbits: Sequence[Orbit],
    x: Any,
    frames: int = 6,
    num_samples: int = 5,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    theme: Theme = "light",
    title: str | None = None,
) -> Figure:
    """A film strip from the initial to the learned orbit: time runs to the right, each row follows one draw.

    ``orbits`` are the two ends, between which the parameters are interpolated in ``frames`` steps, or more than two snapshots,
    which are shown as they are. ``x`` is one image.
    """
    colours, (image, *rest) = _theme(theme), _inputs(x)
    if rest or image.ndim == 1:
        raise ValueError("a film shows one image, (H, W) or (C, H, W).")
    if len(orbits) < 2:
        raise ValueError(f"a film needs two orbits or more, the initial one first, got {len(orbits)}.")
    between = len(orbits) == 2
    strip = [_between(orbits[0], orbits[1], t / (frames - 1)) for t in range(frames)] if between else list(orbits)
    if labels is None:
        labels = ["start", *[""] * (len(strip) - 2), "learned"]
    if len(labels) != len(strip):
        raise ValueError(f"labels must hold one label for each of the {len(strip)} frames, got {len(labels)}.")
    pictures = [draw(orbit, image, num_samples, seed) for orbit in strip]
    cell, ratio = 0.75, image.shape[-2] / image.shape[-1]
    figure, top = _figure(len(strip) * cell, (num_samples * ratio + 0.3) * cell, colours, title)
    header = 0.3 / (num_samples * ratio + 0.3)
    grid = figure.add_gridspec(
        num_samples, len(strip), left=0.01, right=0.99, bottom=0.01, top=top - header * top, wspace=0.05, hspace=0.05
    )
    scale = GreyScale(image.numpy())
    for column, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        last = column == len(strip) - 1
        for row in range(num_samples):
            axes = figure.add_subplot(grid[row, column])
            scale.draw(axes, picture[row], *((colours.accent, 1.4) if last else (colours.soft, 0.5)))
            if row == 0 and label:
                axes.set_title(label, fontsize=9, color=colours.accent if last else colours.ink, pad=4)
    return figure


def ranges(before: Orbit | Description, after: Orbit | Description, theme: Theme = "light", title: str | None = None) -> Figure:
    """The learned ranges with their units, before (grey) and after (colour), one row a parameter.

    The line is where nothing happens: zero, or a factor of one. Parameters that differ in their axis only share a scale.
    """
    colours = _theme(theme)
    old, new = (orbit.describe() if isinstance(orbit, Orbit) else orbit for orbit in (before, after))
    rows = changes(old, new)
    if not rows:
        raise ValueError(f"nothing to compare between {old.title} and {new.title}: they share no parameter.")
    height = 0.34 + 0.5 * len(rows)
    figure, top = _figure(7.2, height, colours, title)
    grid = {"left": 0.19, "right": 0.57, "bottom": 0.26 / height * top, "top": top * (1 - 0.34 / height), "hspace": 1.0}
    panels = figure.subplots(len(rows), squeeze=False, gridspec_kw=grid)[:, 0]
    for axes, change in zip(panels, rows, strict=True):
        draw_change(axes, change, colours)
        _label_change(axes, change, colours)
        unit = change.after.unit
        label = f"{change.name} ({unit})" if unit not in ("", "°", "×") else change.name
        _beside(axes, -0.05, 0.4, label, ha="right", fontsize=9.5, color=colours.ink)
        _beside(axes, 1.3, 0.4, str(change.before), fontsize=8.5, color=colours.soft)
        _beside(axes, 1.8, 0.4, str(change.after), fontsize=10, color=colours.accent)
    _beside(panels[0], 1.3, 1.5, "start", fontsize=9, weight="bold", color=colours.soft)
    _beside(panels[0], 1.8, 1.5, "learned", fontsize=9, weight="bold", color=colours.accent)
    return figure


def sensitivity(model: Any, X: Any, theme: Theme = "light", title: str | None = None) -> Figure:
    """Where on the axis of a signal the predictions of a fitted estimator hang.

    The height is the root mean square, over the rows of X and the latent functions, of the gradient of f times the standard
    deviation of the signals there: how much f moves when this sample alone moves as much as it does in the data. f averages
    over the orbit, and so does its gradient. Several channels have an axis each. It takes a model of exact inference.
    """
    colours = _theme(theme)
    heights = sensitivities(model, X)
    figure, top = _figure(6.4, 1.2 + 0.9 * len(heights), colours, title)
    grid = {"left": 0.09, "right": 0.98, "bottom": 0.4 / (1.2 + 0.9 * len(heights)), "top": top - 0.03}
    for axes, height in zip(
        figure.subplots(len(heights), squeeze=False, sharex=True, gridspec_kw=grid)[:, 0], heights, strict=True
    ):
        draw_sensitivity(axes, height, signal_axis(model.orbit_), colours)
        _open_frame(axes, colours)
    axes.xaxis.label.set(color=colours.soft, size=8)
    return figure


def sensitivities(model: Any, X: Any) -> Float[np.ndarray, "channels length"]:
    """The numbers that :func:`sensitivity` draws."""
    if model.inference_ != "exact":
        raise ValueError(
            "sensitivity takes a model of exact inference: fit with inference='exact', if there are few enough data."
        )
    exact = model.model_
    x = torch.as_tensor(np.asarray(X)).reshape(-1, *model.input_shape_).to(exact.dtype)
    if len(model.input_shape_) > 2:
        raise ValueError(f"sensitivity is for signals (T,) or (C, T), but the inputs have shape {tuple(model.input_shape_)}.")
    slope = exact.mean_gradient(x).double()
    spread = exact.x.double().std(0)
    return (slope.square().mean((0, 1)).sqrt() * spread).reshape(-1, x.shape[-1]).numpy()


def draw_sensitivity(
    axes: Axes, height: Float[np.ndarray, " length"], axis: tuple[float, str] | None, colours: Colours
) -> None:
    """One channel of :func:`sensitivity`."""
    interval, label = (axis[0], axis_label(axis[1])) if axis else (1.0, "feature")
    place = interval * np.arange(len(height))
    axes.fill_between(place, height, color=colours.accent, alpha=0.35, linewidth=0)
    axes.plot(place, height, color=colours.accent, linewidth=1.4)
    axes.set(xlabel=label, ylim=(0, None), yticks=[])


def _beside(axes: Axes, x: float, y: float, text: str, ha: str = "center", **style: Any) -> None:
    """Text at a place given in widths and heights of the axes."""
    axes.text(x, y, text, transform=axes.transAxes, va="center", ha=ha, **style)


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
        steps = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 2.0, 3.0, 5.0, 10.0)
        wide = high / low > 1.7
        axes.xaxis.set_major_locator(FixedLocator([t for t in steps if not (wide and t in (0.8, 0.9, 1.1, 1.2))]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    sign = unit if unit in ("°", "×") else ""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: with_unit(f"{value:g}".replace("-", "−"), sign)))
    axes.set(yticks=[], facecolor="none")
    axes.tick_params(axis="x", colors=colours.soft, labelsize=6.5, length=2, pad=1.5)
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=colours.soft, linewidth=0.5)


def _signals(orbit: Orbit, inputs: list[Tensor], drawn: list[Tensor], colours: Colours, title: str | None) -> Figure:
    figure, top = _figure(4.0 * len(inputs), 2.4, colours, title)
    panels = figure.add_gridspec(1, len(inputs), left=0.1 / len(inputs), right=0.98, bottom=0.16, top=top - 0.03)
    for panel, (signal, others) in enumerate(zip(inputs, drawn, strict=True)):
        axes = figure.add_subplot(panels[0, panel])
        draw_vector(axes, signal.numpy(), others.numpy(), colours, signal_axis(orbit))
        _open_frame(axes, colours)
        axes.xaxis.label.set(color=colours.soft, size=7)
    return figure


def _open_frame(axes: Axes, colours: Colours) -> None:
    """Soft lines at the left and the bottom only."""
    axes.set_facecolor("none")
    axes.tick_params(colors=colours.soft, labelsize=7)
    for side, spine in axes.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=colours.soft)


def signal_axis(orbit: Orbit) -> tuple[float, str] | None:
    """The distance between samples and its unit, if the orbit acts on signals."""
    parts = [part for part in orbit.modules() if isinstance(part, SignalOrbit) and not isinstance(part, Parts)]
    found = [(part.interval, part.unit) for part in parts if part.unit != SAMPLES]
    return found[0] if found else (1.0, SAMPLES) if parts else None


def axis_label(unit: str) -> str:
    """What stands below the axis of a signal: "time in s", "position in nm", or "samples" where it has no unit."""
    if unit == SAMPLES:
        return unit
    return f"time in {unit}" if unit in _OF_TIME else f"position in {unit}"


def draw_vector(
    axes: Axes,
    x: Shaped[np.ndarray, "*features"],
    others: Shaped[np.ndarray, "samples *features"],
    colours: Colours,
    axis: tuple[float, str] | None = None,
    names: Sequence[str] = (),
) -> None:
    """A vector among the samples of its orbit: a point among points up to two dimensions, else a line among lines.

    ``axis`` is that of a signal: the distance between samples, and its unit. Channels have a band each, one below the other.
    Columns of a table have ``names``, and a row each, the first on top. Nothing lies between two of them, so that no line joins
    them.
    """
    if x.ndim == 1 and len(x) > 2 and names and axis is None:
        places = np.arange(len(x))
        axes.plot(others, np.broadcast_to(places + 0.15, others.shape), "o", color=colours.soft, markersize=3, alpha=0.5)
        axes.plot(x, places - 0.15, "o", color=colours.accent, markersize=5)
        every = ceil(len(x) / MOST_NAMES)
        axes.set_yticks(places[::every], names[::every])
        axes.set_ylim(len(x) - 0.4, -0.6)
        return
    if x.shape[-1] > 2:
        interval, label = (axis[0], axis_label(axis[1])) if axis else (1.0, "feature")
        place = interval * np.arange(x.shape[-1])
        step = 1.1 * float(np.ptp(others)) or 1.0
        for channel, (line, around) in enumerate(
            zip(np.atleast_2d(x), others.reshape(len(others), -1, len(place)).swapaxes(0, 1), strict=True)
        ):
            axes.plot(place, around.T - channel * step, color=colours.soft, linewidth=0.7, alpha=0.7)
            axes.plot(place, line - channel * step, color=colours.accent, linewidth=2.2)
        axes.set_xlabel(label)
        if x.ndim > 1:  # the heights of lower bands are not their values
            axes.set_yticks([])
        if interval == 1:
            axes.locator_params("x", integer=True)
        return
    flat = len(x) == 1
    axes.plot(others[:, 0], np.zeros(len(others)) if flat else others[:, 1], "o", color=colours.soft, markersize=4, alpha=0.7)
    axes.plot(x[0], 0.0 if flat else x[1], "o", color=colours.accent, markersize=8)
    labels = [*names, "first feature", "second feature"] if len(names) < len(x) else names
    axes.set(xlabel=labels[0], ylabel="" if flat else labels[1])


class GreyScale:
    """One way to show images: the same grey scale for all of them, in every theme, so that nobody sees a negative.

    Attributes:
        low, high: the values of black and white.
    """

    def __init__(self, images: Shaped[np.ndarray, "*shape"]) -> None:
        self.low, self.high = float(images.min()), float(images.max())

    def pixels(self, image: Shaped[np.ndarray, "*shape"]) -> Float[np.ndarray, "height width *channels"]:
        """The image from 0 (black) to 1 (white): (H, W, 3) with three channels, else (H, W)."""
        scaled = (image.astype(np.float64) - self.low) / ((self.high - self.low) or 1.0)
        if image.ndim == 3:
            scaled = np.moveaxis(scaled, 0, -1) if len(image) == 3 else scaled.mean(0)
        return scaled.clip(0, 1)

    def draw(self, axes: Axes, image: Tensor, frame: str, width: float) -> None:
        """The image on axes without ticks, with a frame of this colour and width."""
        axes.imshow(self.pixels(image.numpy()), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(color=frame, linewidth=width, zorder=10)


def _theme(theme: str) -> Colours:
    if theme not in _THEMES:
        raise ValueError(f"theme must be one of {', '.join(_THEMES)}, got {theme!r}.")
    return _THEMES[theme]


def _inputs(x: Any) -> list[Tensor]:
    """One input or a list of them as tensors."""
    several = list(x) if isinstance(x, list | tuple) else [x]
    tensors = [torch.as_tensor(one).detach().cpu().to(torch.get_default_dtype()) for one in several]
    if not tensors or any(t.ndim not in (1, 2, 3) or t.shape != tensors[0].shape for t in tensors):
        raise ValueError("a picture needs one input, (D,), (H, W) or (C, H, W), or a list of inputs of one shape.")
    return tensors


def draw(orbit: Orbit, x: Tensor, num_samples: int, seed: int) -> Tensor:
    """Samples (num_samples, *features), in the order of the first base draw."""
    orbit = copy.deepcopy(orbit).cpu()
    generator = torch.Generator().manual_seed(seed)
    u = base_draws("qmc", 1, 1, num_samples, orbit.draws_for(x.shape), generator=generator, dtype=x.dtype)[0]
    if u.shape[-1]:
        u = u[:, u[0, :, 0].argsort()]
    with torch.no_grad():
        drawn = orbit.transform(x[None], u)[0]
    # A finite part multiplies the samples: take an even selection.
    return drawn[torch.linspace(0, len(drawn) - 1, min(num_samples, len(drawn))).round().long()]


def _between(first: Orbit, last: Orbit, t: float) -> Orbit:
    orbit, last = copy.deepcopy(first), copy.deepcopy(last)
    for part in (*orbit.modules(), *last.modules()):
        if isinstance(part, Range):  # a symmetric range on the way to a lopsided one
            part.allow_skew()
    ends = zip(orbit.state_dict().items(), last.state_dict().values(), strict=True)
    orbit.load_state_dict({name: torch.lerp(a, b, t) if a.is_floating_point() else a for (name, a), b in ends})
    return orbit


def _new_figure(width: float, height: float, **arguments: Any) -> Figure:
    try:
        from orbitgp.notebook_figure import NotebookFigure
    except ImportError:
        raise ImportError("a picture needs matplotlib: pip install 'orbitgp[plot]'.") from None
    return NotebookFigure(figsize=(width, height), **arguments)


def new_axes(width: float, height: float) -> Axes:
    """Axes alone on a new figure of so many inches, without a box around them."""
    axes = _new_figure(width, height, layout="constrained").subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _figure(width: float, height: float, colours: Colours, title: str | None) -> tuple[Figure, float]:
    """A figure of that many inches plus its title, and the height at which the title begins."""
    extra = 0.36 if title else 0.0
    figure = _new_figure(width, height + extra, dpi=160, facecolor=colours.paper)
    top = height * 0.99 / (height + extra)
    if title:
        size = min(11.0, 1.7 * 72 * width / len(title))  # fits on one line
        figure.text(0.5, 1 - 0.12 / (height + extra), title, ha="center", va="top", fontsize=size, color=colours.ink)
    return figure, top
