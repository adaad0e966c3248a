"""Gaussian noise: the likelihood that is a quadratic itself."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods.base import Moments, Quadratic
from orbitgp.likelihoods.noise import Noise


class Gaussian(Noise):
    """y = f + e, e ~ N(0, noise): const = -1/2 (log 2 pi noise + y^2 / noise), eta = y / noise, lam = 1 / noise.

    ``noise`` is one variance shared by all outputs, learned on the log scale above ``min_noise``.
    """

    shares_curvature = True

    def __init__(self, num_latents: int = 1, noise: float = 0.1, min_noise: float = 1e-6) -> None:
        super().__init__(num_latents)
        if not noise > min_noise:
            raise ValueError(f"noise must be above min_noise={min_noise}, got {noise}.")
        self.num_locals = 0
        self.min_noise = min_noise
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise - min_noise), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        return self.log_noise.exp() + self.min_noise

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        noise = self.noise.to(r.dtype)
        return -0.5 * (torch.log(2 * math.pi * noise) + r.square() / noise)

    def local(self, y: Float[Tensor, "rows latents"], moments: Moments) -> None:
        return None

    def quadratic(self, y: Float[Tensor, "rows latents"], local: Float[Tensor, "rows *params"] | None = None) -> Quadratic:
        precision = (1 / self.noise.to(y.dtype)).expand_as(y)
        return Quadratic(self.log_density(y).sum(-1), y * precision, precision)

    def scale_mixture(self) -> tuple[Float[Tensor, " components"], Float[Tensor, " components"]]:
        noise = self.noise.detach()[None]
        return torch.ones_like(noise), noise
