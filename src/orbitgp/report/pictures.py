"""Inputs and their orbits as pieces of a page: images as PNG, vectors as small charts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Shaped
from markupsafe import Markup
from PIL import Image

from orbitgp.orbits import Orbit
from orbitgp.plotting.figures import PAPER, new_axes
from orbitgp.plotting.samples import GreyScale, draw
from orbitgp.plotting.signals import MOST_NAMES, draw_sensitivity, draw_vector, sensitivities, signal_axis
from orbitgp.report.charts import SIZE, svg
from orbitgp.report.fitted import Fitted

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
        """A vector or a signal among the samples of its orbit. Small charts are drawn small: letters keep their size."""
        is_row = bool(self.columns) and self.axis is None and len(x) > 2
        if is_row:  # each column has a line, so that no name lies on another
            height = 0.5 + 0.2 * min(len(x), MOST_NAMES)
        axes = new_axes(4.2 if x.shape[-1] <= 2 else SIZE[0], height) if whole else new_axes(2.9, height)
        draw_vector(axes, x, self.samples(x, count), PAPER, self.axis, self._column_names(x))
        if is_row:
            axes.set_xlabel("standardised value" if self.scales else "value")
            axes.locator_params("x", nbins=6)
        if not whole:
            axes.locator_params("x", nbins=4)
        if not (whole or is_row):
            axes.locator_params("y", nbins=3)
        return svg(axes, f"{label} and samples of its orbit")

    def _column_names(self, x: Input) -> Sequence[str]:
        """The columns of a table; those that were standardised with the value of this row, in its own unit."""
        if not self.scales or len(x) <= 2:
            return self.columns
        values = [shift + unit * float(value) for value, (shift, unit) in zip(x, self.scales, strict=True)]
        return [f"{shorten(name)} {value:.4g}" for name, value in zip(self.columns, values, strict=True)]

    def sensitivity(self, model: Fitted, x: Shaped[np.ndarray, "rows *features"]) -> Markup | None:
        """Where on the axis of signals the predictions look; None where there is no such picture."""
        if self.axis is None or model.inference_ != "exact":
            return None
        heights = sensitivities(model, x[np.linspace(0, len(x) - 1, min(_ROWS, len(x))).round().astype(int)])
        axes = new_axes(SIZE[0], 1.6)
        for height in heights:
            draw_sensitivity(axes, height, self.axis, PAPER)
        return svg(axes, "How much predictions move with each sample")


def shorten(name: str, most: int = 18) -> str:
    """A name that leaves room for what stands beside it."""
    return name if len(name) <= most else name[: most - 1] + "…"


_ROWS = 24  # inputs whose gradients are averaged
