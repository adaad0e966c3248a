"""Mirror images and quarter turns: finite orbits of images."""

from __future__ import annotations

import torch

from orbitgp.orbits.base import FiniteOrbit
from orbitgp.orbits.images.base import ImageOrbit
from orbitgp.orbits.sampling import Elements, Inputs


class Flip(ImageOrbit, FiniteOrbit):
    """The image and its mirror image: ``horizontal`` exchanges left and right, ``vertical`` top and bottom, or both."""

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        super().__init__()
        if not (horizontal or vertical):
            raise ValueError("Flip needs at least one of horizontal and vertical.")
        self.horizontal, self.vertical = horizontal, vertical
        self.size = 2 ** (bool(horizontal) + bool(vertical))

    def elements(self, x: Inputs) -> Elements:
        images = [x]
        if self.horizontal:
            images += [image.flip(-1) for image in images]
        if self.vertical:
            images += [image.flip(-2) for image in images]
        return torch.stack(images, dim=1)


class Rotate90(ImageOrbit, FiniteOrbit):
    """The four rotations of a square image by quarter turns."""

    size = 4

    def check(self, features: torch.Size) -> None:
        super().check(features)
        if features[-1] != features[-2]:
            raise ValueError(f"Rotate90 needs square images, got shape {tuple(features)}: use Flip or Rotation.")

    def elements(self, x: Inputs) -> Elements:
        return torch.stack([x.rot90(k, dims=(-2, -1)) for k in range(4)], dim=1)
