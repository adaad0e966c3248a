"""Do plausible ranges hold the truth? Data drawn from the model itself, with an orbit that is known.

Nominally a plausible range holds the true one in 95 % of all fits. Here y is a draw of the Gaussian process whose
kernel is the mean over a known orbit, with noise. That mean is a closed form for noise on the inputs, and a sum over 96
evenly spaced transformations for images. Images are transformed by scipy, and no code of the library has a part in it.
A default fit then says what is plausible.

``python -m experiments coverage --jobs 16``, on one thread each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from jaxtyping import Float
from scipy.ndimage import map_coordinates
from scipy.spatial.distance import cdist

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp import InvariantGPRegressor
from orbitgp.orbits import GaussianNoise, Orbit, Rotation, Scale, Translation

ROWS, SIDE = 60, 8  # images, and their pixels along each axis
NOISE = 0.1  # standard deviation of the noise on y, where f has one of 1
PLACES = 96  # transformations that stand for all
LENGTH = (
    0.5  # the lengthscale of g where noise is on the inputs: it is given to the model, or none could tell the two apart
)
HOLD = (0.90, 0.98)  # of all ranges

Matrix = Float[np.ndarray, "2 2"]
Images = Float[np.ndarray, "rows height width"]
Vectors = Float[np.ndarray, "rows features"]


class Kind(NamedTuple):
    """An orbit with a true reach: how to start, what its quantity is called, and how far it goes.

    ``looks``: for a transformation, between -1 and 1 of the reach, the matrix and the shift of the points that pixels
    look at.
    """

    start: Callable[[], Orbit]
    name: str
    true: float
    looks: Callable[[float], tuple[Matrix, float]] | None = None


def turned(degrees: float) -> Kind:
    def looks(share: float) -> tuple[Matrix, float]:
        cos, sin = np.cos(np.deg2rad(share * degrees)), np.sin(np.deg2rad(share * degrees))
        return np.array([[cos, -sin], [sin, cos]]), 0.0

    return Kind(lambda: Rotation(30), "degrees", degrees, looks)


def shifted(pixels: float) -> Kind:
    return Kind(lambda: Translation(1.0, None), "shift_x", pixels, lambda share: (np.eye(2), share * pixels))


def scaled(factor: float) -> Kind:
    return Kind(lambda: Scale(1.2), "scale", factor, lambda share: (np.eye(2) * factor**share, 0.0))


KINDS = {
    "rotation ±20°": turned(20.0),
    "rotation ±40°": turned(40.0),
    "rotation ±90°": turned(90.0),
    "shift ±1.5 px": shifted(1.5),
    "scale ×1.5": scaled(1.5),
    "noise 0.3": Kind(lambda: GaussianNoise(0.3), "scale", 0.3),
    "noise 0.8": Kind(lambda: GaussianNoise(0.3), "scale", 0.8),
}


def blobs(rng: np.random.Generator) -> Images:
    """Images of three spots each, bright or dark."""
    grid, images = np.linspace(-1, 1, SIDE), np.zeros((ROWS, SIDE, SIDE))
    for image in images:
        for down, across, sign in zip(*rng.uniform(-0.6, 0.6, (2, 3)), rng.choice([-1, 1], 3), strict=True):
            spot = np.exp(-((grid[:, None] - down) ** 2 + (grid - across) ** 2) / 0.1)
            image += sign * rng.uniform(0.5, 1.5) * spot
    return images.astype(np.float32)


def transformed(images: Images, matrix: Matrix, shift: float) -> Vectors:
    """Every pixel shows what is at another point, between pixels by bilinear interpolation; there is nothing
    outside."""
    centre = (SIDE - 1) / 2
    points = matrix @ (np.indices((SIDE, SIDE)).reshape(2, -1) - centre) + centre
    points[1] += shift
    return np.stack([map_coordinates(image, points, order=1, mode="grid-constant") for image in images.astype(float)])


def covariance(kind: Kind, x: Images | Vectors) -> Float[np.ndarray, "rows rows"]:
    """The mean over the orbit of an RBF kernel, on both sides."""
    if kind.looks is None:  # noise on both sides adds to the squared lengthscale
        return np.exp(-0.5 * cdist(x, x, "sqeuclidean") / (LENGTH**2 + 2 * kind.true**2))
    flat = x.reshape(ROWS, -1)
    length = 0.7 * np.median(cdist(flat, flat)[np.triu_indices(ROWS, 1)])
    shares = 2 * (np.arange(PLACES) + 0.5) / PLACES - 1
    points = np.stack([transformed(x, *kind.looks(share)) / length for share in shares], 1).reshape(ROWS * PLACES, -1)
    squares = (points**2).sum(1)
    # One image at a time: all its transformations with those of all images.
    each = (slice(PLACES * row, PLACES * (row + 1)) for row in range(ROWS))
    rows = [np.exp(points[one] @ points.T - 0.5 * (squares[one, None] + squares)) for one in each]
    total = np.stack([row.reshape(PLACES, ROWS, PLACES).mean((0, 2)) for row in rows])
    return total / total.diagonal().mean()


def data(kind: Kind, seed: int) -> tuple[Images | Vectors, Float[np.ndarray, " rows"]]:
    """Inputs, and a draw of the process with noise."""
    rng = np.random.default_rng([39, seed])
    x = rng.uniform(-4, 4, (ROWS, 1)) if kind.looks is None else blobs(rng)
    root = np.linalg.cholesky(covariance(kind, x) + 1e-9 * np.eye(ROWS))
    return x, root @ rng.normal(size=ROWS) + NOISE * rng.normal(size=ROWS)


@dataclass(frozen=True)
class Coverage(harness.Run):
    """One fit."""

    kind: str
    seed: int

    def name(self) -> str:
        return harness.slug(self.kind, self.seed)

    def measure(self, device: str) -> Record:
        torch.set_num_threads(1)
        kind = KINDS[self.kind]
        x, y = data(kind, self.seed)
        kernel = None
        if kind.looks is None:
            kernel = ScaleKernel(RBFKernel())
            kernel.base_kernel.lengthscale = LENGTH
            kernel.base_kernel.raw_lengthscale.requires_grad_(False)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = InvariantGPRegressor(kind.start(), kernel=kernel, random_state=self.seed).fit(x, y)
        seconds = round(time.perf_counter() - begin, 2)
        ends = model.plausible_.get(kind.name)
        learned = upper(model.describe()[kind.name])
        found = None if ends is None else [upper(end) for end in ends]
        return {
            "seconds": seconds,
            "true": kind.true,
            "learned": learned,
            "plausible": found,
            "converged": model.converged_,
        }


def upper(value: float | tuple[float, float]) -> float:
    """A number, or the upper end of a range around zero."""
    return value[1] if isinstance(value, tuple) else value


def holds(record: Record) -> bool:
    """Whether what is plausible holds the truth; where nothing is determined, everything is plausible."""
    low, high = record["plausible"] or (0.0, np.inf)
    return bool(low <= record["true"] <= high)


def table(records: Records) -> str:
    """How many ranges hold the truth, and what they say."""
    cells = []
    for (kind,), group in harness.grouped(records, "kind").items():
        known = [r["plausible"] for r in group if r["plausible"] is not None]
        learned, low, high = (np.median(v) for v in ([r["learned"] for r in group], *zip(*known, strict=True)))
        held, seconds = sum(map(holds, group)), np.median([r["seconds"] for r in group])
        numbers = [
            f"{held} of {len(group)}",
            f"{learned:.3g}",
            f"{low:.3g} to {high:.3g}",
            f"{len(group) - len(known)}",
        ]
        cells.append([kind, *numbers, f"{seconds:.1f}"])
    titles = ["truth", "held", "learned (median)", "plausible (medians)", "not determined", "seconds"]
    return harness.markdown(titles, cells)


def check(records: Records) -> Claims:
    """About 95 % of all ranges hold the truth."""
    share, (least, most) = np.mean([holds(r) for r in records]), HOLD
    said = f"{100 * least:.0f} to {100 * most:.0f} % of the plausible ranges hold the truth ({100 * share:.1f} %)"
    return {said: bool(least <= share <= most)}


def plan(options: argparse.Namespace) -> list[Coverage]:
    """Every kind with every seed."""
    return [Coverage(kind, seed) for seed in range(options.seeds) for kind in options.kinds]


EXPERIMENT = harness.Experiment(
    "coverage",
    __doc__,
    plan,
    table,
    check,
    seeds=30,
    options={
        "--kinds": {"nargs": "+", "choices": list(KINDS), "default": list(KINDS), "help": "only some of the orbits"}
    },
    on_gpu=False,
)
