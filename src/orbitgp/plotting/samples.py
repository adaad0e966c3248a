"""Inputs among the samples of their orbit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from orbitgp.orbits.base import Orbit, Parts
from orbitgp.orbits.sampling import base_draws
from orbitgp.orbits.signals.warps import SAMPLES, SignalOrbit
from orbitgp.plotting.figures import ACCENT, SOFT, open_frame, titled_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Vector = Shaped[np.ndarray, "*features"]  # (D,), or a signal (T,) or (C, T)
Vectors = Shaped[np.ndarray, "samples *features"]
Axis = tuple[float, str]  # of a signal: the distance between samples, and its unit

_TIME = {"ns", "µs", "us", "ms", "s", "sec", "seconds", "min", "minutes", "h", "hours", "d", "days", "months", "years"}
MOST_NAMES = 16  # of the columns of a table, for which there is room


def show(orbit: Orbit, x: Any, num_samples: int = 24, seed: int = 0, title: str | None = None) -> Figure:
    """Samples of the orbit around the original, which is the framed one in the middle: figure 1 of the paper.

    ``x`` is one input, an image (H, W) or (C, H, W) or a signal (T,) or (C, T), or several in a list, a panel each.
    Samples are in the order of their first base draw: angles grow from top left to bottom right through the original.
    """
    inputs = _inputs(x)
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, got {num_samples}.")
    drawn = [draw(orbit, one, num_samples, seed) for one in inputs]
    if inputs[0].ndim == 1 or signal_axis(orbit) is not None:
        return _show_signals(orbit, inputs, drawn, title)
    panels, count = len(inputs), len(drawn[0])  # a finite orbit may have fewer
    columns = max(3, int((count + 1) ** 0.5)) | 1  # odd, so that there is a middle
    rows = ceil((count + 1) / columns) | 1
    cell, gap, ratio = 0.8, 0.5, inputs[0].shape[-2] / inputs[0].shape[-1]
    figure, top = titled_figure(panels * columns * cell + (panels - 1) * gap, rows * cell * ratio, title)
    layout = figure.add_gridspec(1, panels, left=0.01, right=0.99, bottom=0.01, top=top, wspace=gap / (columns * cell))
    half, middle = count // 2, rows * columns // 2
    for panel, (image, others) in enumerate(zip(inputs, drawn, strict=True)):
        grid = layout[0, panel].subgridspec(rows, columns, wspace=0.06, hspace=0.06)
        scale = GreyScale(image.numpy())
        for place, picture in enumerate([*others[:half], image, *others[half:]], start=middle - half):
            frame, width = (ACCENT, 2.4) if place == middle else (SOFT, 0.4)
            scale.draw(figure.add_subplot(grid[place // columns, place % columns]), picture, frame, width)
    return figure


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


def _inputs(x: Any) -> list[Tensor]:
    """One input or a list of them as tensors."""
    several = list(x) if isinstance(x, list | tuple) else [x]
    tensors = [torch.as_tensor(one).detach().cpu().to(torch.get_default_dtype()) for one in several]
    if not tensors or any(t.ndim not in (1, 2, 3) or t.shape != tensors[0].shape for t in tensors):
        raise ValueError("a picture needs one input, (D,), (H, W) or (C, H, W), or a list of inputs of one shape.")
    return tensors


class GreyScale:
    """One way to show images: black and white are the same for all of them, so that nobody sees a negative."""

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


def _show_signals(orbit: Orbit, inputs: list[Tensor], drawn: list[Tensor], title: str | None) -> Figure:
    """Each signal among the samples of its orbit, in a panel."""
    figure, top = titled_figure(4.0 * len(inputs), 2.4, title)
    panels = figure.add_gridspec(1, len(inputs), left=0.1 / len(inputs), right=0.98, bottom=0.16, top=top - 0.03)
    for panel, (signal, others) in enumerate(zip(inputs, drawn, strict=True)):
        axes = figure.add_subplot(panels[0, panel])
        draw_vector(axes, signal.numpy(), others.numpy(), signal_axis(orbit))
        open_frame(axes)
        axes.xaxis.label.set(color=SOFT, size=7)
    return figure


def draw_vector(axes: Axes, x: Vector, others: Vectors, axis: Axis | None = None, names: Sequence[str] = ()) -> None:
    """A vector among the samples of its orbit: a point among points up to two dimensions, else a line among lines.

    ``axis`` is that of a signal. Its channels have a band each, one below the other. Columns of a table have ``names``,
    and a row each, the first on top. Nothing lies between two of them, so that no line joins them.
    """
    if x.shape[-1] <= 2:
        _draw_point(axes, x, others, names)
    elif x.ndim == 1 and names and axis is None:
        _draw_row(axes, x, others, names)
    else:
        _draw_signal(axes, x, others, axis)


def _draw_point(axes: Axes, x: Vector, others: Vectors, names: Sequence[str]) -> None:
    flat = len(x) == 1
    axes.plot(others[:, 0], np.zeros(len(others)) if flat else others[:, 1], "o", color=SOFT, markersize=4, alpha=0.7)
    axes.plot(x[0], 0.0 if flat else x[1], "o", color=ACCENT, markersize=8)
    labels = [*names, "first feature", "second feature"] if len(names) < len(x) else names
    axes.set(xlabel=labels[0], ylabel="" if flat else labels[1])


def _draw_row(axes: Axes, x: Vector, others: Vectors, names: Sequence[str]) -> None:
    places = np.arange(len(x))
    axes.plot(others, np.broadcast_to(places + 0.15, others.shape), "o", color=SOFT, markersize=3, alpha=0.5)
    axes.plot(x, places - 0.15, "o", color=ACCENT, markersize=5)
    every = ceil(len(x) / MOST_NAMES)
    axes.set_yticks(places[::every], names[::every])
    axes.set_ylim(len(x) - 0.4, -0.6)


def _draw_signal(axes: Axes, x: Vector, others: Vectors, axis: Axis | None) -> None:
    place, label = _places(x.shape[-1], axis)
    step = 1.1 * float(np.ptp(others)) or 1.0
    bands = others.reshape(len(others), -1, len(place)).swapaxes(0, 1)
    for channel, (line, around) in enumerate(zip(np.atleast_2d(x), bands, strict=True)):
        axes.plot(place, around.T - channel * step, color=SOFT, linewidth=0.7, alpha=0.7)
        axes.plot(place, line - channel * step, color=ACCENT, linewidth=2.2)
    axes.set_xlabel(label)
    if x.ndim > 1:  # the heights of lower bands are not their values
        axes.set_yticks([])
    if axis is None or axis[0] == 1:
        axes.locator_params("x", integer=True)


def _places(length: int, axis: Axis | None) -> tuple[Float[np.ndarray, " length"], str]:
    """Where the samples of a signal lie on its axis, or features side by side, and what stands below: "time in s"."""
    interval, unit = axis or (1.0, "feature")
    kind = "" if unit in (SAMPLES, "feature") else "time in " if unit in _TIME else "position in "
    return interval * np.arange(length), kind + unit


def signal_axis(orbit: Orbit) -> Axis | None:
    """The distance between samples and its unit, if the orbit acts on signals."""
    parts = [part for part in orbit.modules() if isinstance(part, SignalOrbit) and not isinstance(part, Parts)]
    found = [(part.interval, part.unit) for part in parts if part.unit != SAMPLES]
    return found[0] if found else (1.0, SAMPLES) if parts else None
