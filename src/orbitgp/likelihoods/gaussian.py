"""Gaussian noise: the likelihood that is a quadratic itself."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods.base import Likelihood, Quadratic


class Gaussian(Likelihood):
    """y = f + e, e ~ N(0, noise): const = -1/2 (log 2 pi noise + y^2 / noise), eta = y / noise, lam = 1 / noise.

    ``noise`` is one variance shared by all outputs, learned on the log scale above ``min_noise``.
    """

    def __init__(self, num_latents: int = 1, noise: float = 0.1, min_noise: float = 1e-6) -> None:
        super().__init__()
        if not noise > min_noise:
            raise ValueError(f"noise must be above min_noise={min_noise}, got {noise}.")
        self.num_latents = num_latents
        self.min_noise = min_noise
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise - min_noise), dtype=torch.float64))

    @property
    def noise(self) -> Tensor:
        return self.log_noise.exp() + self.min_noise

    def quadratic(self, y: Float[Tensor, "rows *outputs"], local: Float[Tensor, "rows *params"] | None = None) -> Quadratic:
        noise = self.noise.to(y.dtype)
        const = -0.5 * (self.num_latents * torch.log(2 * math.pi * noise) + y.square().sum(-1) / noise)
        return Quadratic(const, y / noise, (1 / noise).expand_as(y))

    def log_prob(
        self, y: Float[Tensor, "rows *outputs"], f: Float[Tensor, "*samples rows latents"]
    ) -> Float[Tensor, "*samples rows"]:
        noise = self.noise.to(y.dtype)
        return -0.5 * (torch.log(2 * math.pi * noise) + (y - f).square() / noise).sum(-1)
