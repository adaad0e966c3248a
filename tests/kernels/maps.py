"""Feature maps for tests: oriented gradients from their definition, in loops, and a map of one's own."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

NAMES = ("window", "smoothing", "sharpness", "power", "floor")
# Far from the defaults, and from each other.
OTHER: dict[str, Any] = {
    "orientations": 5,
    "cell": 2.5,
    "window": 0.9,
    "smoothing": 0.4,
    "sharpness": 4.0,
    "power": 0.6,
    "floor": 0.02,
}


def bells(size: int, centres: list[float], width: float) -> np.ndarray:
    """Gaussian weights of the pixels around each centre, which sum to one."""
    weights = np.empty((len(centres), size))
    for i, centre in enumerate(centres):
        for j in range(size):
            weights[i, j] = math.exp(-0.5 * ((j - centre) / width) ** 2)
        weights[i] /= weights[i].sum()
    return weights


def centres(size: int, cell: float) -> list[float]:
    """Windows of equal width side by side, at least one; a pixel's centre is a whole number."""
    number = max(1, round(size / cell))
    return [(i + 0.5) * size / number - 0.5 for i in range(number)]


def oriented_gradients_of_one(
    image: np.ndarray,
    orientations: int = 8,
    cell: float | None = None,
    window: float = 0.625,
    smoothing: float = 0.25,
    sharpness: float = 9.0,
    power: float = 0.4,
    floor: float = 1e-4,
) -> np.ndarray:
    """The docstring in loops, for one channel: (orientations, rows of windows, columns of windows), before unit
    length."""
    height, width = image.shape
    if cell is None:
        cell = max(2.0, min(height, width) / 7)
    blur_y, blur_x = (bells(n, [float(i) for i in range(n)], cell * smoothing) for n in image.shape)
    smooth = np.zeros((height + 2, width + 2))  # with zeros around
    for i, j, k, m in itertools.product(range(height), range(width), range(height), range(width)):
        smooth[i + 1, j + 1] += blur_y[i, k] * blur_x[j, m] * image[k, m]
    windows_y, windows_x = centres(height, cell), centres(width, cell)
    pool_y, pool_x = bells(height, windows_y, cell * window), bells(width, windows_x, cell * window)
    means = np.zeros((orientations, len(windows_y), len(windows_x)))
    for o, i, j in itertools.product(range(orientations), range(height), range(width)):
        dx = (smooth[i + 1, j + 2] - smooth[i + 1, j]) / 2
        dy = (smooth[i + 2, j + 1] - smooth[i, j + 1]) / 2
        strength = math.sqrt(dx**2 + dy**2 + 1e-6)
        angle = 2 * math.pi * o / orientations
        cosine = (dx * math.cos(angle) + dy * math.sin(angle)) / strength
        edge = strength * math.exp(sharpness * (cosine - 1))
        for a, b in itertools.product(range(len(windows_y)), range(len(windows_x))):
            means[o, a, b] += pool_y[a, i] * pool_x[b, j] * edge
    return (means + floor) ** power


def oriented_gradients(x: Tensor, **arguments: Any) -> Tensor:
    """All images, all channels; features are ordered by orientation, channel, row, column."""
    rows = []
    for image in x.numpy():
        channels = image if image.ndim == 3 else image[None]
        features = np.stack([oriented_gradients_of_one(c, **arguments) for c in channels], axis=1).ravel()
        rows.append(features / math.sqrt((features**2).sum()))
    return torch.tensor(np.stack(rows))


class Curved(nn.Module):
    """A map of vectors with two parameters, which notes how many rows it saw at a time."""

    def __init__(self, dim: int = 4, features: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(torch.randn(dim, features, generator=generator, dtype=torch.float64))
        self.shift = nn.Parameter(torch.randn(features, generator=generator, dtype=torch.float64))
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return torch.sin(x @ self.weight + self.shift)
