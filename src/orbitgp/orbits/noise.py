"""Insensitivity to noise on the input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from orbitgp.orbits.base import Orbit
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.ranges import Number
from orbitgp.orbits.sampling import Draws, Inputs, Transformed


class GaussianNoise(Orbit):
    """x_a = x + scale * e with e ~ N(0, I): one learned scale shared by all features, or one for each.

    Under an RBF kernel this orbit has a closed form (again an RBF, wider and lower), with which exact inference needs no draws.
    The sign of the scale does not matter, so it is unconstrained and never saturates.
    """

    reach = ("scale",)
    in_units_of_inputs = True

    def __init__(self, init_scale: Number = 0.1, num_features: int | None = None, learn: bool = True) -> None:
        super().__init__()
        if not init_scale > 0:
            raise ValueError(f"init_scale must be positive (at zero the gradient vanishes), got {init_scale}.")
        shape = () if num_features is None else (num_features,)
        self.scale = nn.Parameter(torch.full(shape, float(init_scale)), requires_grad=learn)

    def draws_for(self, features: torch.Size) -> int:
        return features.numel()

    def check(self, features: torch.Size) -> None:
        if self.scale.ndim and self.scale.numel() != features.numel():
            raise ValueError(f"GaussianNoise has {self.scale.numel()} scales, but the inputs have {features.numel()} features.")

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        noise: Tensor = self.scale * torch.special.ndtri(u)
        return x[:, None] + noise.reshape(*u.shape[:2], *x.shape[1:])

    def describe(self) -> Description:
        scale = self.scale.detach().abs()
        value = float(scale) if scale.ndim == 0 else (float(scale.min()), float(scale.max()))
        return Description("GaussianNoise", {"scale": Quantity(value)})

    def saved_arguments(self) -> dict[str, Any]:
        return {"num_features": self.scale.numel() if self.scale.ndim else None}
