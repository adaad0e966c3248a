"""Inputs and their orbits as pieces of a page: images as PNG, vectors as small charts."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Shaped
from markupsafe import Markup
from PIL import Image

from orbitgp.orbits import Orbit
from orbitgp.plotting import GreyScale, draw
from orbitgp.report.charts import vector_chart

Input = Float[np.ndarray, "*features"]


class Pictures:
    """One way to show all inputs of a data set: the same grey scale, ink in the colour of the page's ink.

    Attributes:
        images: whether inputs are images; else they are vectors.
        ink: whether images look like ink on a page.
    """

    def __init__(self, orbit: Orbit, x: Shaped[np.ndarray, "rows *features"]) -> None:
        self.orbit = orbit
        self.images = x.ndim > 2
        self.scale = GreyScale(x[:1000])
        self.ink = self.scale.ink and not (x.ndim == 4 and x.shape[1] == 3)

    def address(self, image: Input) -> str:
        """An image as an address that holds the image itself."""
        return data_uri(image, self.scale.low, self.scale.high)

    def samples(self, x: Input, count: int) -> Shaped[np.ndarray, "samples *features"]:
        """Samples of the orbit of one input, in the order of their first base draw."""
        return np.asarray(draw(self.orbit, torch.as_tensor(np.asarray(x, dtype=np.float32)), count, seed=0).numpy())

    def chart(self, x: Input, count: int, label: str, height: float) -> Markup:
        """A vector among the samples of its orbit."""
        return vector_chart(x, self.samples(x, count), label, height)


def data_uri(image: Float[np.ndarray, "*shape"], low: float, high: float) -> str:
    """An image (H, W) or (C, H, W) as PNG in a data: address, black at ``low`` and white at ``high``."""
    scaled = (np.asarray(image, dtype=np.float64) - low) / ((high - low) or 1.0)
    pixels = np.round(255 * scaled.clip(0, 1)).astype(np.uint8)
    if pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1) if len(pixels) == 3 else np.round(pixels.mean(0)).astype(np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode("ascii")
