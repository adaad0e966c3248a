"""Inputs and their orbits as pieces of a page: images in grids and strips, vectors as small charts."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Shaped

from orbitgp.orbits import Orbit
from orbitgp.orbits.description import number
from orbitgp.plotting import GreyScale, draw
from orbitgp.report.charts import Frame, counted, whole
from orbitgp.report.html import Markup, tag
from orbitgp.report.png import data_uri

Input = Float[np.ndarray, "*features"]
MAX_LINE = 512  # features of a vector that are drawn


class Shown:
    """One way to show all inputs of a data set: the same grey scale, ink in the colour of the page's ink."""

    def __init__(self, x: Shaped[np.ndarray, "rows *features"]) -> None:
        self.images = x.ndim > 2
        scale = GreyScale(x[:1000])
        self.low, self.high = scale.low, scale.high
        self.ink = scale.ink and not (x.ndim == 4 and x.shape[1] == 3)

    def image(self, x: Input, alt: str, framed: bool = False) -> Markup:
        names = " ".join(word for word, given in (("ink", self.ink), ("framed", framed)) if given)
        size = {"width": x.shape[-1], "height": x.shape[-2]}
        picture = tag("img", src=data_uri(x, self.low, self.high), alt=alt, class_="ink" if self.ink else None, **size)
        return tag("span", picture, class_=f"cell {names}".strip())

    def grid(self, orbit: Orbit, x: Input, label: str, side: int = 5) -> Markup:
        """Samples around the original, which is the framed one in the middle, in the order of the first draw."""
        if not self.images:
            return self.cloud(orbit, x, label)
        others = samples(orbit, x, side * side - 1)
        before = len(others) // 2
        cells = [self.image(other, f"a sample of the orbit of {label}") for other in others]
        cells.insert(before, self.image(x, label, framed=True))
        columns = side if len(cells) >= side * side else min(len(cells), 4)
        return tag("figure", tag("div", *cells, class_="grid", style=f"--columns:{columns}"), tag("figcaption", label))

    def strip(self, orbit: Orbit, x: Input, label: str, count: int = 6) -> Markup:
        """An input and a few samples of its orbit, in a row."""
        if not self.images:
            return tag("div", vector(x, samples(orbit, x, 24), label, 0.6), class_="strip vector")
        cells = [self.image(x, label, framed=True)]
        cells += [self.image(other, f"a sample of the orbit of {label}") for other in samples(orbit, x, count)]
        return tag("div", *cells, class_="strip")

    def cloud(self, orbit: Orbit, x: Input, label: str) -> Markup:
        return tag("figure", vector(x, samples(orbit, x, 48), label), tag("figcaption", label), class_="vector")


def samples(orbit: Orbit, x: Input, count: int) -> Shaped[np.ndarray, "samples *features"]:
    """Samples of the orbit of one input, in the order of their first base draw."""
    drawn = draw(orbit, torch.as_tensor(np.asarray(x, dtype=np.float32)), count, seed=0)
    return np.asarray(drawn.numpy())


def vector(x: Input, others: Shaped[np.ndarray, "samples features"], label: str, height: float = 1.0) -> Markup:
    """A vector among the samples of its orbit: a point among points in two dimensions, a line among lines in more."""
    everything = np.concatenate([x[None], others])
    low, high = float(everything.min()), float(everything.max())
    pad = 0.06 * (high - low) or 1.0
    title = f"{label} and samples of its orbit"
    if len(x) <= 2:
        across = everything[:, 0].tolist()
        up = everything[:, 1].tolist() if len(x) == 2 else [0.0] * len(everything)
        frame = Frame((low - pad, high + pad), (low - pad, high + pad), left=48, width=300, height=300 * height)
        parts = frame.axes("first feature", "second feature" if len(x) == 2 else "", whole, whole)
        for a, b in zip(across[1:], up[1:], strict=True):
            parts.append(tag("circle", cx=frame.px(a), cy=frame.py(b), r=3.5, class_="dot soft"))
        parts.append(tag("circle", cx=frame.px(across[0]), cy=frame.py(up[0]), r=6, class_="dot accent"))
        return frame.svg(*parts, title=title)
    steps = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_LINE)).round().astype(int))
    frame = Frame((0.0, float(len(x) - 1)), (low - pad, high + pad), left=48, height=200 * height, top=8)
    parts = frame.axes("feature", "", counted, number)
    places = steps.tolist()
    for other in others:
        parts.append(tag("polyline", points=frame.points(places, other[steps].tolist()), class_="line soft thin"))
    parts.append(tag("polyline", points=frame.points(places, x[steps].tolist()), class_="line"))
    return frame.svg(*parts, title=title)
