"""Rotated images: data with a known invariance.

Each image turns about its centre by an angle drawn uniformly from ±max_degrees, with a fixed seed; ±180° makes the label
independent of orientation, smaller ranges only partly so. A pixel of the result is interpolated bilinearly from the image:

    result(p) = image(R(-angle) p),        p measured from the centre, background 0 outside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Float64

from orbitgp.datasets.base import Dataset, DatasetError, Images
from orbitgp.datasets.mnist_files import mnist

_CHUNK = 2048


def rotate(images: Images, max_degrees: float | int, seed: int = 0) -> tuple[Images, Float[np.ndarray, " rows"]]:
    """Every image turned by an angle of its own; the images and the angles in degrees (counter-clockwise as seen)."""
    if not 0 <= max_degrees <= 180:
        raise ValueError(f"max_degrees must lie in [0, 180], got {max_degrees}.")
    degrees = max_degrees * (2 * np.random.default_rng(seed).random(len(images)) - 1)
    return rotate_by(images, degrees), degrees


def rotate_by(
    images: Float32[np.ndarray, "rows height width"], degrees: Float[np.ndarray, " rows"]
) -> Float32[np.ndarray, "rows height width"]:
    """Every image turned counter-clockwise by its angle."""
    if images.ndim != 3 or images.dtype != np.float32 or degrees.shape != images.shape[:1]:
        raise ValueError(
            f"rotation takes float32 images (N, height, width) and N angles, got {images.dtype} of shape {images.shape} and "
            f"angles of shape {degrees.shape}."
        )
    _, height, width = images.shape
    # Distances from the centre, in pixels: angles are right for oblong images too.
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = np.arange(height)[:, None] - middle_y, np.arange(width) - middle_x
    rotated = np.empty_like(images)
    for start in range(0, len(images), _CHUNK):
        rows = slice(start, start + _CHUNK)
        angle = np.deg2rad(degrees[rows].astype(np.float64))[:, None, None]
        # Rows count downwards, hence the signs: the result turns counter-clockwise.
        from_x = np.cos(angle) * x - np.sin(angle) * y
        from_y = np.sin(angle) * x + np.cos(angle) * y
        rotated[rows] = _interpolate(images[rows], from_y + middle_y, from_x + middle_x)
    return rotated


def _interpolate(
    images: Float32[np.ndarray, "rows height width"], y: Float64[np.ndarray, "rows ..."], x: Float64[np.ndarray, "rows ..."]
) -> Float64[np.ndarray, "rows ..."]:
    """Bilinear interpolation at points in pixels; 0 outside. Points on a pixel give its value exactly."""
    rows, height, width = images.shape
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1))).reshape(rows, -1)

    def pixel(row: Float64[np.ndarray, "rows ..."], column: Float64[np.ndarray, "rows ..."]) -> Float32[np.ndarray, "rows ..."]:
        index = (np.clip(row, -1, height) + 1) * (width + 2) + np.clip(column, -1, width) + 1
        return np.take_along_axis(framed, index.reshape(rows, -1).astype(np.intp), axis=1).reshape(row.shape)

    top, left = np.floor(y), np.floor(x)
    down, right = y - top, x - left
    above = (1 - right) * pixel(top, left) + right * pixel(top, left + 1)
    below = (1 - right) * pixel(top + 1, left) + right * pixel(top + 1, left + 1)
    return (1 - down) * above + down * below


def rotated_mnist(
    root: str | Path | None = None,
    download: bool = True,
    max_degrees: float | int = 180.0,
    num_train: int = 12_000,
    num_test: int = 50_000,
    seed: int = 0,
) -> Dataset:
    """Rotated MNIST (generated): the sizes of the Montreal set, made here from all 70,000 digits with a fixed seed.

    Figures on it are not comparable with those published for the Montreal files (see ``montreal_rotated_mnist``).
    """
    digits = mnist(root=root, download=download)
    x = np.concatenate([digits.x_train, digits.x_test])
    y = np.concatenate([digits.y_train, digits.y_test])
    if num_train < 1 or num_test < 1 or num_train + num_test > len(x):
        raise DatasetError(
            f"{num_train} train and {num_test} test digits were asked for, but there are {len(x)}: ask for fewer."
        )
    draw, turn = np.random.SeedSequence(seed).generate_state(2)
    chosen = np.random.default_rng(draw).permutation(len(x))[: num_train + num_test]
    x, y = rotate(x[chosen], max_degrees, int(turn))[0], y[chosen]
    name = "rotated MNIST (generated)" + (f", ±{max_degrees:g}°" if max_degrees != 180 else "")
    source = f"{digits.source} of MNIST, seed {seed}"
    return Dataset(x[:num_train], y[:num_train], x[num_train:], y[num_train:], name=name, source=source)
