"""A transformation that is common to all images, learned as a part of g: which part of an image is looked at."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.kernels.feature_maps import check_images
from orbitgp.kernels.learned_constants import LearnedConstants
from orbitgp.orbits.constants import constant


class Frame(LearnedConstants):
    """The part of every image within a frame about its centre, enlarged to the size of the image, then seen by another map.

    Images often have a margin, and a map with a few windows for the whole image then sees what matters coarsely. This is not an
    invariance: nothing is averaged, and all images are enlarged alike. The image is interpolated by cubic polynomials, row by
    row and column by column, so the map is smooth in the image and in the frame. A frame larger than the image adds a margin.

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

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        check_images(self, x)
        width, height = self.constants(x.dtype)
        down, across = _cubic(x.shape[-2], height), _cubic(x.shape[-1], width)
        seen = down @ (x @ across.mT)
        return seen.flatten(1) if self.feature_map is None else self.feature_map(seen)

    def saved_arguments(self) -> dict[str, Any]:
        return {"feature_map": self.feature_map, "learn": self.learn}

    def extra_repr(self) -> str:
        return self._described()


def _cubic(size: int, share: Tensor) -> Float[Tensor, "size size"]:
    """Weights of the pixels of a line for as many places, evenly over this share of it. Beyond its ends there is zero."""
    pixels = _from_centre(size, dtype=share.dtype, device=share.device)
    away = (share * pixels[:, None] - pixels).abs()
    near = (1.5 * away - 2.5) * away.square() + 1
    far = ((2.5 - 0.5 * away) * away - 4) * away + 2
    return torch.where(away < 1, near, torch.where(away < 2, far, 0.0))


@constant
def _from_centre(size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64) - (size - 1) / 2
