"""A feature map for images: histograms of oriented gradients, smooth in the image and in five learned constants."""

from __future__ import annotations

from math import inf, log, pi

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.feature_maps import check_images
from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.kernels.windows import windows
from orbitgp.orbits.constants import constant


class OrientedGradients(LearnedConstants):
    """Where edges run in which direction, independent of contrast: smooth histograms of oriented gradients.

    The gradient of the smoothed image has a strength and a direction. There are ``orientations`` directions, evenly around the
    circle. Each weights the strength by its tuning curve exp(sharpness * (cos(angle) - 1)). Gaussian windows one ``cell`` apart
    average these over the image. A power below one brings strong and weak edges closer, and the vector is scaled to unit
    length. All of it is differentiable, in the image too, so orbits are learned through it. Images with several channels have
    these features for each channel.

    Args:
        orientations: how many directions.
        cell: distance between windows, in pixels; by default a seventh of the shorter side of the image, and at least two.
        window: their standard deviation, in cells.
        smoothing: standard deviation, in cells, of the blur before the gradient.
        sharpness: how narrow the tuning curves are.
        power: applied to the mean of each window.
        floor: added to that mean before. Edges that are much fainter are not seen.
        learn: whether window, smoothing, sharpness, power and floor are learned, starting at these values.
    """

    def __init__(
        self,
        orientations: int = 8,
        cell: float | None = None,
        window: float = 0.625,
        smoothing: float = 0.25,
        sharpness: float = 9.0,
        power: float = 0.4,
        floor: float = 1e-4,
        learn: bool = True,
    ) -> None:
        super().__init__(learn, window=window, smoothing=smoothing, sharpness=sharpness, power=power, floor=floor)
        if orientations < 1:
            raise ValueError(f"orientations must be at least 1, got {orientations}.")
        if cell is not None and not 0 < cell < inf:
            raise ValueError(f"cell must be positive and finite, got {cell}.")
        self.orientations, self.cell = orientations, cell

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        check_images(self, x)
        window, smoothing, sharpness, power, floor = self.constants(x.dtype)
        height, width = x.shape[-2:]
        cell = self.cell or max(min(height, width) / 7, 2.0)
        blur_y, blur_x = (windows(n, n, cell * smoothing) for n in (height, width))
        dx, dy = _separable(x, blur_y, _differences(blur_x)), _separable(x, _differences(blur_y), blur_x)
        squared = dx.square() + dy.square() + _FLAT
        # The logarithm of strength times tuning curve is linear in the direction, so one small product yields all of them.
        # (In base two: 2^h takes two thirds of the time of e^h.)
        sharpness = sharpness / log(2)
        inverse = squared.rsqrt()
        terms = torch.stack([dx * inverse, dy * inverse, 0.5 * squared.log2() - sharpness])
        cosine, sine = _compass(self.orientations, dtype=x.dtype, device=x.device)
        edges = torch.stack([sharpness * cosine, sharpness * sine, torch.ones_like(sine)], 1).mm(terms.flatten(1)).exp2()
        pool_y, pool_x = (windows(n, max(1, round(n / cell)), cell * window) for n in (height, width))
        means = _separable(edges.unflatten(1, dx.shape), pool_x, pool_y).movedim(0, 1)
        return F.normalize((means + floor).pow(power).flatten(1), dim=1)

    def extra_repr(self) -> str:
        return self._described(orientations=self.orientations, cell=self.cell)


_FLAT = 1e-6  # squared strength of a gradient that has no direction


def _separable(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """(down x across^T)^T. Each product is a single one of two matrices for all images."""
    return (x @ across.mT).mT.contiguous() @ down.mT


def _differences(blur: Tensor) -> Tensor:
    """Central differences after the blur; zero outside the image."""
    return 0.5 * (F.pad(blur[1:], (0, 0, 0, 1)) - F.pad(blur[:-1], (0, 0, 1, 0)))


@constant
def _compass(orientations: int) -> Tensor:
    angles = torch.arange(orientations, dtype=torch.float64) * (2 * pi / orientations)
    return torch.stack([angles.cos(), angles.sin()])
