"""Signals and rows of tables among the samples of their orbit, and where on its axis a signal matters."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.signals.warps import SAMPLES, SignalOrbit
from orbitgp.plotting.figures import Colours, Theme, open_frame, theme_colours, titled_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Vector = Shaped[np.ndarray, "*features"]  # (D,), or a signal (T,) or (C, T)
Vectors = Shaped[np.ndarray, "samples *features"]
Axis = tuple[float, str]  # of a signal: the distance between samples, and its unit

_OF_TIME = {"ns", "µs", "us", "ms", "s", "sec", "seconds", "min", "minutes", "h", "hours", "d", "days", "months", "years"}
MOST_NAMES = 16  # of the columns of a table, for which there is room


def show_signals(orbit: Orbit, inputs: list[Tensor], drawn: list[Tensor], colours: Colours, title: str | None) -> Figure:
    """Each signal among the samples of its orbit, in a panel."""
    figure, top = titled_figure(4.0 * len(inputs), 2.4, colours, title)
    panels = figure.add_gridspec(1, len(inputs), left=0.1 / len(inputs), right=0.98, bottom=0.16, top=top - 0.03)
    for panel, (signal, others) in enumerate(zip(inputs, drawn, strict=True)):
        axes = figure.add_subplot(panels[0, panel])
        draw_vector(axes, signal.numpy(), others.numpy(), colours, signal_axis(orbit))
        open_frame(axes, colours)
        axes.xaxis.label.set(color=colours.soft, size=7)
    return figure


def draw_vector(
    axes: Axes, x: Vector, others: Vectors, colours: Colours, axis: Axis | None = None, names: Sequence[str] = ()
) -> None:
    """A vector among the samples of its orbit: a point among points up to two dimensions, else a line among lines.

    ``axis`` is that of a signal. Its channels have a band each, one below the other. Columns of a table have ``names``, and a
    row each, the first on top. Nothing lies between two of them, so that no line joins them.
    """
    if x.shape[-1] <= 2:
        _draw_point(axes, x, others, colours, names)
    elif x.ndim == 1 and names and axis is None:
        _draw_row(axes, x, others, colours, names)
    else:
        _draw_signal(axes, x, others, colours, axis)


def _draw_point(axes: Axes, x: Vector, others: Vectors, colours: Colours, names: Sequence[str]) -> None:
    flat = len(x) == 1
    axes.plot(others[:, 0], np.zeros(len(others)) if flat else others[:, 1], "o", color=colours.soft, markersize=4, alpha=0.7)
    axes.plot(x[0], 0.0 if flat else x[1], "o", color=colours.accent, markersize=8)
    labels = [*names, "first feature", "second feature"] if len(names) < len(x) else names
    axes.set(xlabel=labels[0], ylabel="" if flat else labels[1])


def _draw_row(axes: Axes, x: Vector, others: Vectors, colours: Colours, names: Sequence[str]) -> None:
    places = np.arange(len(x))
    axes.plot(others, np.broadcast_to(places + 0.15, others.shape), "o", color=colours.soft, markersize=3, alpha=0.5)
    axes.plot(x, places - 0.15, "o", color=colours.accent, markersize=5)
    every = ceil(len(x) / MOST_NAMES)
    axes.set_yticks(places[::every], names[::every])
    axes.set_ylim(len(x) - 0.4, -0.6)


def _draw_signal(axes: Axes, x: Vector, others: Vectors, colours: Colours, axis: Axis | None) -> None:
    place, label = _places(x.shape[-1], axis)
    step = 1.1 * float(np.ptp(others)) or 1.0
    bands = others.reshape(len(others), -1, len(place)).swapaxes(0, 1)
    for channel, (line, around) in enumerate(zip(np.atleast_2d(x), bands, strict=True)):
        axes.plot(place, around.T - channel * step, color=colours.soft, linewidth=0.7, alpha=0.7)
        axes.plot(place, line - channel * step, color=colours.accent, linewidth=2.2)
    axes.set_xlabel(label)
    if x.ndim > 1:  # the heights of lower bands are not their values
        axes.set_yticks([])
    if axis is None or axis[0] == 1:
        axes.locator_params("x", integer=True)


def sensitivity(model: Any, X: Any, theme: Theme = "light", title: str | None = None) -> Figure:
    """Where on the axis of a signal the predictions of a fitted estimator hang.

    The height is the root mean square, over the rows of X and the latent functions, of the gradient of f times the standard
    deviation of the signals there: how much f moves when this sample alone moves as much as it does in the data. f averages
    over the orbit, and so does its gradient. Several channels have an axis each. It takes a model of exact inference.
    """
    colours = theme_colours(theme)
    heights = sensitivities(model, X)
    inches = 1.2 + 0.9 * len(heights)
    figure, top = titled_figure(6.4, inches, colours, title)
    grid = {"left": 0.09, "right": 0.98, "bottom": 0.4 / inches, "top": top - 0.03}
    panels = figure.subplots(len(heights), squeeze=False, sharex=True, gridspec_kw=grid)[:, 0]
    for axes, height in zip(panels, heights, strict=True):
        draw_sensitivity(axes, height, signal_axis(model.orbit_), colours)
        open_frame(axes, colours)
    axes.xaxis.label.set(color=colours.soft, size=8)
    return figure


def sensitivities(model: Any, X: Any) -> Float[np.ndarray, "channels length"]:
    """The numbers that :func:`sensitivity` draws."""
    exact, shape = model.model_, tuple(model.input_shape_)
    if model.inference_ != "exact":
        raise ValueError("sensitivity takes a model of exact inference: fit fewer data, with inference='exact'.")
    if len(shape) > 2:
        raise ValueError(f"sensitivity is for signals (T,) or (C, T), but the inputs have shape {shape}.")
    x = torch.as_tensor(np.asarray(X)).reshape(-1, *shape).to(exact.dtype)
    slope = exact.mean_gradient(x).double()
    spread = exact.x.double().std(0)
    return (slope.square().mean((0, 1)).sqrt() * spread).reshape(-1, x.shape[-1]).numpy()


def draw_sensitivity(axes: Axes, height: Float[np.ndarray, " length"], axis: Axis | None, colours: Colours) -> None:
    """One channel of :func:`sensitivity`."""
    place, label = _places(len(height), axis)
    axes.fill_between(place, height, color=colours.accent, alpha=0.35, linewidth=0)
    axes.plot(place, height, color=colours.accent, linewidth=1.4)
    axes.set(xlabel=label, ylim=(0, None), yticks=[])


def _places(length: int, axis: Axis | None) -> tuple[Float[np.ndarray, " length"], str]:
    """Where the samples of a signal lie on its axis, or features side by side, and what stands below: "time in s"."""
    interval, unit = axis or (1.0, "feature")
    kind = "" if unit in (SAMPLES, "feature") else "time in " if unit in _OF_TIME else "position in "
    return interval * np.arange(length), kind + unit


def signal_axis(orbit: Orbit) -> Axis | None:
    """The distance between samples and its unit, if the orbit acts on signals."""
    parts = [part for part in orbit.modules() if isinstance(part, SignalOrbit) and not isinstance(part, Parts)]
    found = [(part.interval, part.unit) for part in parts if part.unit != SAMPLES]
    return found[0] if found else (1.0, SAMPLES) if parts else None
