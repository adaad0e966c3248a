"""Samples of an orbit: what it does to an input, and how it grew while it was learned."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.ranges import Range
from orbitgp.orbits.sampling import base_draws
from orbitgp.plotting.figures import Theme, theme_colours, titled_figure
from orbitgp.plotting.signals import show_signals, signal_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def show(
    orbit: Orbit, x: Any, num_samples: int = 24, seed: int = 0, theme: Theme = "light", title: str | None = None
) -> Figure:
    """Samples of the orbit around the original, which is the framed one in the middle: figure 1 of the paper.

    ``x`` is one input, an image (H, W) or (C, H, W) or a signal (T,) or (C, T), or a list of several, for a panel each. Samples
    are in the order of their first base draw: an angle grows from the top left to the bottom right, through the original.
    """
    colours, inputs = theme_colours(theme), _inputs(x)
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, got {num_samples}.")
    drawn = [draw(orbit, one, num_samples, seed) for one in inputs]
    if inputs[0].ndim == 1 or signal_axis(orbit) is not None:
        return show_signals(orbit, inputs, drawn, colours, title)
    panels, count = len(inputs), len(drawn[0])  # a finite orbit may have fewer
    columns = max(3, int((count + 1) ** 0.5)) | 1  # odd, so that there is a middle
    rows = ceil((count + 1) / columns) | 1
    cell, gap, ratio = 0.8, 0.5, inputs[0].shape[-2] / inputs[0].shape[-1]
    figure, top = titled_figure(panels * columns * cell + (panels - 1) * gap, rows * cell * ratio, colours, title)
    layout = figure.add_gridspec(1, panels, left=0.01, right=0.99, bottom=0.01, top=top, wspace=gap / (columns * cell))
    half, middle = count // 2, rows * columns // 2
    for panel, (image, others) in enumerate(zip(inputs, drawn, strict=True)):
        grid = layout[0, panel].subgridspec(rows, columns, wspace=0.06, hspace=0.06)
        scale = GreyScale(image.numpy())
        for place, picture in enumerate([*others[:half], image, *others[half:]], start=middle - half):
            frame, width = (colours.accent, 2.4) if place == middle else (colours.soft, 0.4)
            scale.draw(figure.add_subplot(grid[place // columns, place % columns]), picture, frame, width)
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
    colours, (image, *rest) = theme_colours(theme), _inputs(x)
    if rest or image.ndim == 1:
        raise ValueError("a film shows one image, (H, W) or (C, H, W).")
    if len(orbits) < 2:
        raise ValueError(f"a film needs two orbits or more, the initial one first, got {len(orbits)}.")
    strip = list(orbits)
    if len(orbits) == 2:
        strip = [_between(orbits[0], orbits[1], t / (frames - 1)) for t in range(frames)]
    labels = ["start", *[""] * (len(strip) - 2), "learned"] if labels is None else labels
    if len(labels) != len(strip):
        raise ValueError(f"labels must hold one label for each of the {len(strip)} frames, got {len(labels)}.")
    cell, header, height = 0.75, 0.3, num_samples * image.shape[-2] / image.shape[-1]
    figure, top = titled_figure(len(strip) * cell, (height + header) * cell, colours, title)
    edges = {"left": 0.01, "right": 0.99, "bottom": 0.01, "top": top * height / (height + header)}
    grid = figure.add_gridspec(num_samples, len(strip), wspace=0.05, hspace=0.05, **edges)
    scale = GreyScale(image.numpy())
    for i, (orbit, label) in enumerate(zip(strip, labels, strict=True)):
        last = orbit is strip[-1]
        for row, picture in enumerate(draw(orbit, image, num_samples, seed)):
            axes = figure.add_subplot(grid[row, i])
            scale.draw(axes, picture, *((colours.accent, 1.4) if last else (colours.soft, 0.5)))
            axes.set_title("" if row else label, fontsize=9, color=colours.accent if last else colours.ink, pad=4)
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


def _between(first: Orbit, last: Orbit, t: float) -> Orbit:
    orbit, last = copy.deepcopy(first), copy.deepcopy(last)
    for part in (*orbit.modules(), *last.modules()):
        if isinstance(part, Range):  # a symmetric range on the way to a lopsided one
            part.allow_skew()
    ends = zip(orbit.state_dict().items(), last.state_dict().values(), strict=True)
    orbit.load_state_dict({name: torch.lerp(a, b, t) if a.is_floating_point() else a for (name, a), b in ends})
    return orbit


class GreyScale:
    """One way to show images: black and white are the same for all of them, in every theme, so that nobody sees a negative."""

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
