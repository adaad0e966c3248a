"""Data of the problems of :mod:`experiments.certainty`: small images, signals and tables, and targets of known
processes."""

from __future__ import annotations

import numpy as np

from experiments import certainty_truth as true
from experiments.certainty_truth import Array


def blobs(rng: np.random.Generator, rows: int, side: int = 8) -> Array:
    """Images of three bright or dark spots."""
    grid = np.linspace(-1, 1, side)
    centres, weights = (
        rng.uniform(-0.6, 0.6, (2, rows, 3, 1)),
        rng.uniform(0.5, 1.5, (rows, 3)) * rng.choice([-1, 1], (rows, 3)),
    )
    down, across = np.exp(-((grid - centres) ** 2) / 0.1)
    return np.einsum("nk,nki,nkj->nij", weights, down, across).astype(np.float32)


def signals(rng: np.random.Generator, rows: int, length: int = 24) -> Array:
    """Signals of three peaks, up or down."""
    centres, weights = (
        rng.uniform(4, length - 5, (rows, 3, 1)),
        rng.uniform(0.5, 1.5, (rows, 3)) * rng.choice([-1, 1], (rows, 3)),
    )
    return np.einsum("nk,nkt->nt", weights, np.exp(-((np.arange(length) - centres) ** 2) / 8))


def inputs(kind: str, rng: np.random.Generator, rows: int) -> Array:
    """Signals for orbits of time, a table for swaps and noise, else images."""
    if kind.startswith("time"):
        return signals(rng, rows)
    return rng.normal(size=(rows, 4)) if kind in ("swap", "noise") else blobs(rng, rows)


def smooth_gram(points: Array, rng: np.random.Generator, low: float = 0.6, high: float = 1.0) -> Array:
    """A random RBF kernel averaged over orbits: (rows, points, dim) -> (rows, rows), of unit variance on average.

    Its lengthscale lies between ``low`` and ``high`` median distances.
    """
    lengthscale = rng.uniform(low, high) * true.median_distance(points[:, 0])
    gram = true.orbit_gram(points, lengthscale, 1.0)
    return gram / np.diag(gram).mean()


def table(kind: str, rng: np.random.Generator, rows: int) -> tuple[Array, Array, bool]:
    """A standardised table, its targets, and whether these are classes: some rows of known data, or synthetic ones."""
    if kind in ("curve", "two scales"):
        x = rng.uniform(-3, 3, (rows, 1)) if kind == "curve" else rng.normal(size=(rows, 4))
        wide, narrow = (2.0, rng.uniform(0.15, 1.0)) if kind == "curve" else (6.0, 1.0)
        return x, true.drawn(true.noise_gram(x, wide, 4.0) + true.noise_gram(x, narrow, 1.0), 0.05, rng), False
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{kind}")(return_X_y=True)
    some = rng.permutation(len(x))[:rows]
    x, first = np.unique(x[some], axis=0, return_index=True)
    spread = x.std(0)
    return (x - x.mean(0)) / np.where(spread > 0, spread, 1.0), y[some][first], kind != "diabetes"


def planted(kind: str, x: Array, rng: np.random.Generator) -> Array:
    """Points of the orbit that data are drawn from: (rows, points, dim)."""
    if kind == "swap":
        return np.stack([x, x[:, [1, 0, *range(2, x.shape[1])]]], 1)
    if kind == "timeshift":
        reach = rng.uniform(4, 8)
        return true.shifted(x, true.midpoints(-reach, reach, 64))
    if kind == "rotation":
        reach = float(np.deg2rad(rng.uniform(60, 180)))
        return true.warped(x, true.affine_maps(true.midpoints(-reach, reach, 64)))
    angle, factor, right, down = rng.uniform(-1, 1, (4, 256))
    return true.warped(x, true.affine_maps(0.5 * angle, np.exp(0.2 * factor), 1.5 * right, 1.5 * down))
