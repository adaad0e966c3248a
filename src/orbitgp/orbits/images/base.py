"""The base class of image orbits: they act on (H, W) or (C, H, W), square or not."""

from __future__ import annotations

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.base import Orbit


class ImageOrbit(Orbit):
    """An orbit of images (H, W) or (C, H, W)."""

    def check(self, features: torch.Size) -> None:
        if len(features) not in (2, 3):
            expected = f"{type(self).__name__} acts on images (H, W) or (C, H, W)"
            raise ValueError(f"{expected}, but the inputs have shape {tuple(features)}: set image_shape.")


def as_inputs(x: Float[Tensor, "*batch dim"], image_shape: tuple[int, ...] | None) -> Float[Tensor, "rows *features"]:
    """Flat rows as images of this shape, or the rows themselves where there is no shape."""
    shape = image_shape or x.shape[-1:]
    if prod(shape) != x.shape[-1]:
        raise ValueError(f"image_shape {tuple(shape)} has {prod(shape)} pixels, but the inputs have {x.shape[-1]}.")
    return x.reshape(-1, *shape)
