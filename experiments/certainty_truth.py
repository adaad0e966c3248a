"""Log evidence in code that shares nothing with the library: numpy and scipy alone.

The evidence of an invariant Gaussian process is that of y ~ N(b, K + noise), with the best constant b or a given one,
where

    K(x, x') = variance * E_a E_a' exp(-|x_a - x'_a'|^2 / (2 lengthscale^2))

averages an RBF kernel over the *infinite* orbits of both inputs, drawn independently. Here the average is a closed form
(Gaussian noise), a sum over midpoints (rotations, shifts in time), or a mean over draws that the caller provides. Each
has an estimate of its own error: half as many points are tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

Array = np.ndarray
MIDPOINTS = 256
MANY_POINTS = 40_000  # above, distances are computed in single precision


class Targets(NamedTuple):
    """What is observed of f.

    Attributes:
        values: a column for each latent function.
        noise: its variance.
        offset: nats that the units of y add.
        constants: the prior mean of each latent function, or None for the best.
    """

    values: Array
    noise: float | Array
    offset: float = 0.0
    constants: Array | None = None


class Truth(NamedTuple):
    """A log evidence and its own error, in nats."""

    nats: float
    error: float = 0.0


def regression_targets(y: Array, noise: float, mean: float, scale: float) -> Targets:
    """Targets that were brought to these units for the fit."""
    return Targets((y[:, None] - mean) / scale, noise, -len(y) * float(np.log(scale)))


def indicator_targets(y: Array, noise: float) -> Targets:
    """Class k as the k-th unit vector less 1/K."""
    classes, index = np.unique(y, return_inverse=True)
    return Targets(np.eye(len(classes))[index] - 1 / len(classes), noise)


def dirichlet_targets(y: Array, concentration: float) -> Targets:
    """The log-normal approximation of Gamma variables whose shapes are the concentration and, for the label, one
    more."""
    classes, index = np.unique(y, return_inverse=True)
    shape = np.eye(len(classes))[index] + concentration
    noise = np.log(1 + 1 / shape)
    values = np.log(shape) - noise / 2
    return Targets(values - values.mean(1, keepdims=True), noise)


def log_evidence(gram: Array, targets: Targets) -> float:
    """The log of N(y; b, K + noise), summed over latent functions, each with its constant b."""
    rows, latents = targets.values.shape
    noise = np.broadcast_to(targets.noise, (rows, latents))
    total = targets.offset
    for latent, (y, variances) in enumerate(zip(targets.values.T, noise.T, strict=True)):
        factor = cho_factor(gram + np.diag(variances), lower=True)
        ones = cho_solve(factor, np.ones(rows))
        residual = y - ((ones @ y) / ones.sum() if targets.constants is None else targets.constants[latent])
        quadratic = residual @ cho_solve(factor, residual)
        total -= 0.5 * float(quadratic + 2 * np.log(np.diag(factor[0])).sum() + rows * np.log(2 * np.pi))
    return total


def squared_distances(x: Array) -> Array:
    """Between all rows."""
    return ((x[:, None] - x[None]) ** 2).sum(-1)


def median_distance(x: Array) -> float:
    """Between two different rows."""
    return float(np.sqrt(np.median(squared_distances(x.reshape(len(x), -1))[np.triu_indices(len(x), 1)])))


def noise_gram(x: Array, lengthscale: Array | float, variance: float, scale: Array | float = 0.0) -> Array:
    """An RBF kernel averaged over Gaussian noise on both inputs: again an RBF, wider by 2 scale^2 and lower."""
    square = np.broadcast_to(np.square(lengthscale), x.shape[1:])
    wider = square + 2 * np.square(scale)
    return variance * np.sqrt(square / wider).prod() * np.exp(-0.5 * squared_distances(x / np.sqrt(wider)))


def orbit_gram(points: Array, lengthscale: Array | float, variance: float) -> Array:
    """The mean of an RBF kernel over all pairs of points of two orbits: (rows, points, dim) -> (rows, rows)."""
    rows, count, _ = points.shape
    scaled = (points - points.mean((0, 1))) / lengthscale
    half = 0.5 * (scaled**2).sum(-1, keepdims=True)
    one = np.ones_like(half)
    precision = np.float32 if rows * count > MANY_POINTS else np.float64
    # One product gives the exponent: x.x' - |x|^2/2 - |x'|^2/2.
    left = np.concatenate([scaled, -half, one], -1).astype(precision)
    right = np.concatenate([scaled, one, -half], -1).astype(precision)
    gram = np.empty((rows, rows))
    for i in range(rows):
        for j in range(i, rows):
            block = left[i] @ right[j].T
            np.exp(block, out=block)
            gram[i, j] = gram[j, i] = block.sum(1).sum(dtype=np.float64)
    return variance * gram / count**2


def midpoints(low: float, high: float, count: int) -> Array:
    """The middles of equal pieces of an interval."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def by_midpoints(
    transformed: Callable[[Array], Array], low: float, high: float, *kernel: float, targets: Targets
) -> Truth:
    """The evidence of an orbit with one parameter, uniform between two ends."""
    few, many = (
        log_evidence(orbit_gram(transformed(midpoints(low, high, count)), *kernel), targets)
        for count in (MIDPOINTS // 2, MIDPOINTS)
    )
    return Truth(many, abs(many - few))


def by_draws(points: Array, *kernel: float, targets: Targets) -> Truth:
    """The evidence of the infinite orbit from two independent sets of shared draws: (2, rows, draws, dim).

    Shared draws raise the evidence by an amount that falls as one over their number. So the mean of the two sets, and
    the union, which has twice the draws, tell what infinitely many would have.
    """
    rows = points.shape[1]
    halves = orbit_gram(np.concatenate(list(points)), *kernel).reshape(2, rows, 2, rows)
    apart = 0.5 * sum(log_evidence(halves[i, :, i], targets) for i in range(2))
    together = log_evidence(halves.mean((0, 2)), targets)
    return Truth(2 * together - apart, abs(together - apart))


def warped(images: Array, maps: Array) -> Array:
    """Images under affine maps of points: (rows, height, width), (maps, 2, 3) -> (rows, maps, pixels). Zero lies
    outside.

    A map takes (x, y, 1), in pixels from the centre, to the point where the image is interpolated, bilinearly.
    """
    height, width = images.shape[1:]
    y, x = np.mgrid[:height, :width].reshape(2, -1) - np.array([[height - 1], [width - 1]]) / 2
    sources = maps @ np.stack([x, y, np.ones_like(x)])
    across = np.clip(sources[:, 0] + (width - 1) / 2, -1, width) + 1
    down = np.clip(sources[:, 1] + (height - 1) / 2, -1, height) + 1
    padded = np.pad(images.astype(float), ((0, 0), (1, 1), (1, 1)))
    left, above = np.minimum(across.astype(int), width), np.minimum(down.astype(int), height)
    right, below = across - left, down - above
    upper = padded[:, above, left] * (1 - right) + padded[:, above, left + 1] * right
    lower = padded[:, above + 1, left] * (1 - right) + padded[:, above + 1, left + 1] * right
    return upper * (1 - below) + lower * below


def affine_maps(
    angles: Array, factor: Array | float = 1.0, right: Array | float = 0.0, down: Array | float = 0.0
) -> Array:
    """Rotations by angles (radians), with scalings and shifts if any: (maps, 2, 3)."""
    cos, sin, none = factor * np.cos(angles), factor * np.sin(angles), np.zeros_like(angles)
    return np.stack([np.stack([cos, -sin, none + right], -1), np.stack([sin, cos, none + down], -1)], -2)


def shifted(signals: Array, shifts: Array) -> Array:
    """Signals that come later by shifts, in samples: linear between samples, and the edge value goes on outside."""
    time = np.arange(signals.shape[1])
    return np.stack([[np.interp(time - shift, time, signal) for shift in shifts] for signal in signals.astype(float)])


def best_evidence(
    x: Array, targets: Targets, starts: int, rng: np.random.Generator, element: Sequence[int] = ()
) -> float:
    """The highest evidence without an orbit, over lengthscale, variance and (where there is one) noise.

    With ``element``, an order of columns that undoes itself, that of the orbit of each row and the same row in this
    order.
    """
    x = x.reshape(len(x), -1).astype(float)
    images = [x, x[:, element]] if len(element) else [x]
    distances = [((x[:, None] - image[None]) ** 2).sum(-1) for image in images]
    middle, spread = median_distance(x), float(targets.values.var())
    learns_noise = np.ndim(targets.noise) == 0

    def loss(logarithms: Array) -> float:
        lengthscale, variance, noise = np.exp(logarithms)
        seen = targets._replace(noise=noise + 1e-6 * spread) if learns_noise else targets
        kernel = sum(np.exp(-0.5 * squared / lengthscale**2) for squared in distances) / len(distances)
        try:
            return -log_evidence(variance * kernel, seen)
        except np.linalg.LinAlgError:
            return 1e10

    begins = rng.uniform((-2, -1, -7), (2, 2, 0), (starts, 3)) + np.log([middle, spread, spread])
    options = {"maxiter": 2000, "xatol": 1e-3, "fatol": 1e-4}
    return -min(float(minimize(loss, begin, method="Nelder-Mead", options=options).fun) for begin in begins)


def drawn(gram: Array, noise: float, rng: np.random.Generator) -> Array:
    """Targets of a Gaussian process, with noise of this standard deviation."""
    rows = len(gram)
    return np.linalg.cholesky(gram + 1e-9 * np.eye(rows)) @ rng.normal(size=rows) + noise * rng.normal(size=rows)
