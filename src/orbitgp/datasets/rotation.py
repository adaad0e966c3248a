"""Rotated images: data with a known invariance.

Each image turns about its centre by an angle drawn uniformly from ±max_degrees, with a fixed seed; ±180° makes the label
independent of orientation, smaller ranges only partly so. A pixel of the result is interpolated bilinearly from the image:

    result(p) = image(R(-angle) p),        p measured from the centre, background 0 outside.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.ndimage import map_coordinates

from orbitgp.datasets.base import Dataset, DatasetError, Images
from orbitgp.datasets.mnist_files import mnist


def rotate(images: Images, max_degrees: float | int, seed: int = 0) -> tuple[Images, Float[np.ndarray, " rows"]]:
    """Every image turned by an angle of its own; the images and the angles in degrees (counter-clockwise as seen)."""
    if not 0 <= max_degrees <= 180:
        raise ValueError(f"max_degrees must lie in [0, 180], got {max_degrees}.")
    degrees = max_degrees * (2 * np.random.default_rng(seed).random(len(images)) - 1)
    return rotate_by(images, degrees), degrees


def rotate_by(images: Images, degrees: Float[np.ndarray, " rows"]) -> Images:
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
    for image, angle, result in zip(images, np.deg2rad(degrees.astype(np.float64)), rotated, strict=True):
        # Rows count downwards, hence the signs: the result turns counter-clockwise.
        from_y = np.sin(angle) * x + np.cos(angle) * y + middle_y
        from_x = np.cos(angle) * x - np.sin(angle) * y + middle_x
        map_coordinates(image, (from_y, from_x), result, order=1, mode="grid-constant")
    return rotated


def rotated_mnist(
    root: str | Path | None = None,
    download: bool = True,
    max_degrees: float | int = 180.0,
    num_train: int = 12_000,
    num_test: int = 50_000,
    seed: int = 0,
) -> Dataset:
    """Rotated MNIST (generated): the sizes of the Montreal set, made here from all 70,000 digits with a fixed seed.

    Figures on it are not comparable with those published for the Montreal files.
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
