"""Feature maps for images: histograms of oriented gradients, and a frame about the part that matters."""

from __future__ import annotations

from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.feature_maps import prepare
from orbitgp.kernels.learned_constants import LearnedConstants, by_direction, windows
from orbitgp.machine import constant


class OrientedGradients(LearnedConstants):
    """Where edges run in which direction, independent of contrast: smooth histograms of oriented gradients.

    The gradient of the smoothed image has a strength and a direction. There are ``orientations`` directions, evenly
    around the circle. Each weights the strength by its tuning curve exp(sharpness * (cos(angle) - 1)). Gaussian windows
    one ``cell`` apart average these over the image. A power below one brings strong and weak edges closer, and the
    vector is scaled to unit length. All of it is differentiable, in the image too, so orbits are learned through it.
    Images with several channels have these features for each channel.

        >>> OrientedGradients()(torch.rand(2, 28, 28)).shape
        torch.Size([2, 392])

    Args:
        orientations: how many directions.
        cell: distance between windows, in pixels; by default a seventh of the image's shorter side, and at least two.
        window: their standard deviation, in cells.
        smoothing: standard deviation, in cells, of the blur before the gradient.
        sharpness: how narrow the tuning curves are.
        power: applied to the mean of each window.
        floor: added to that mean before. Edges that are much fainter are not seen.
        learn: whether window, smoothing, sharpness, power and floor are learned, starting at these values.
    """

    fixed = ("orientations", "cell")

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
        blurs = {n: windows(n, n, cell * smoothing) for n in {height, width}}
        slopes = {n: _differences(blur) for n, blur in blurs.items()}
        dx, dy = _separable(x, blurs[height], slopes[width]), _separable(x, slopes[height], blurs[width])
        edges = by_direction(dx, dy, self.orientations, sharpness, power=1.0)
        pools = {n: windows(n, max(1, round(n / cell)), cell * window) for n in {height, width}}
        means = _separable(edges, pools[width], pools[height]).movedim(0, 1)
        return F.normalize((means + floor).pow(power).flatten(1), dim=1)


class Frame(LearnedConstants):
    """The part of each image in a frame about its centre, enlarged to the size of the image, then seen by another map.

    Images often have a margin, and a map with a few windows for the whole image then sees what matters coarsely. This
    is not an invariance: nothing is averaged, and all images are enlarged alike. The image is interpolated by cubic
    polynomials, row by row and column by column, so the map is smooth in the image and in the frame. A frame larger
    than the image adds a margin.

        >>> Frame(OrientedGradients())(torch.rand(2, 28, 28)).shape
        torch.Size([2, 392])

    Args:
        feature_map: what sees that part; by default k_g sees its pixels.
        width: of the frame, as a share of the image's.
        height: of the frame, as a share of the image's.
        learn: whether width and height are learned, starting at these values.
    """

    def __init__(
        self, feature_map: nn.Module | None = None, width: float = 1.0, height: float = 1.0, learn: bool = True
    ) -> None:
        super().__init__(learn, width=width, height=height)
        self.feature_map = feature_map

    def prepare(self, x: Float[Tensor, "rows *shape"]) -> None:
        """Let the map see that part of these images."""
        if self.feature_map is not None:
            prepare(self.feature_map, self._framed(x))

    def _framed(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows *shape"]:
        check_images(self, x)
        width, height = self.constants(x.dtype)
        down, across = _cubic(x.shape[-2], height), _cubic(x.shape[-1], width)
        return down @ (x @ across.mT)

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        seen = self._framed(x)
        return seen.flatten(1) if self.feature_map is None else self.feature_map(seen)


def check_images(feature_map: nn.Module, x: Float[Tensor, "rows *shape"]) -> None:
    """Refuse rows that are no images."""
    if x.ndim not in (3, 4) or 0 in x.shape[1:]:
        expected, shape = f"{type(feature_map).__name__} takes images (H, W) or (C, H, W)", tuple(x.shape[1:])
        raise ValueError(f"{expected}, but the inputs have shape {shape}: set image_shape.")


def _separable(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """(down x across^T)^T. Each product is a single one of two matrices for all images."""
    return (x @ across.mT).mT.contiguous() @ down.mT


def _differences(blur: Tensor) -> Tensor:
    """Central differences after the blur; zero outside the image."""
    return 0.5 * (F.pad(blur[1:], (0, 0, 0, 1)) - F.pad(blur[:-1], (0, 0, 1, 0)))


def _cubic(size: int, share: Tensor) -> Float[Tensor, "size size"]:
    """Weights of the pixels of a line for as many places, evenly over this share of it. Beyond its ends is zero."""
    pixels = _from_centre(size, dtype=share.dtype, device=share.device)
    away = (share * pixels[:, None] - pixels).abs()
    near = (1.5 * away - 2.5) * away.square() + 1
    far = ((2.5 - 0.5 * away) * away - 4) * away + 2
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


@constant
def _from_centre(size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64) - (size - 1) / 2
