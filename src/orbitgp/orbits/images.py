"""What orbits of images have in common: they act on (H, W) or (C, H, W), square or not."""

from __future__ import annotations

import torch

from orbitgp.orbits.base import Orbit


class ImageOrbit(Orbit):
    """An orbit of images (H, W) or (C, H, W)."""

    def check(self, features: torch.Size) -> None:
        if len(features) not in (2, 3):
            raise ValueError(
                f"{type(self).__name__} acts on images (H, W) or (C, H, W), but the inputs have shape {tuple(features)}: "
                "set image_shape."
            )
