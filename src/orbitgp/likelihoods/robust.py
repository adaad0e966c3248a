"""Noise with heavy tails: Student-t, with a learned tail, and Laplace, which regresses to the median."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods.base import Latents, Quadratic
from orbitgp.likelihoods.noise import Noise

_MIN_DF = 2.0  # above it the noise has a variance
_LEAST_EXCESS = 0.01  # of a df over that: the variance is 201 squared scales, and never infinite
_LARGE = 1e4  # half a df, above which the noise is as good as Gaussian, and log Gamma rounds away what is left
_SHARPEST = 1e-3  # the least |c| of the Laplace bound, in units of its scale


class ScaledNoise(Noise):
    """Noise whose ``scale`` is learned above ``min_scale``. Without it, the density of targets that a function passes through
    has no top."""

    def __init__(self, num_latents: int = 1, scale: float = 0.3, min_scale: float = 0.0) -> None:
        super().__init__(num_latents)
        if not scale > min_scale:
            raise ValueError(f"scale must be above min_scale={min_scale}, got {scale}.")
        self.min_scale = min_scale
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale - min_scale), dtype=torch.float64))

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp() + self.min_scale

    def saved_arguments(self) -> dict[str, Any]:
        # The scale is a parameter, learned above min_scale, and must start above it.
        return {"num_latents": self.num_latents, "scale": self.min_scale + 1.0, "min_scale": self.min_scale}


class StudentT(ScaledNoise):
    """g(r) = log t_df(r / scale) - log scale, w(c) = (df + 1) / (df scale^2 + c^2).

    ``scale`` and ``df`` are learned: ``scale`` above ``min_scale``, and ``df`` above 2, so that the noise has a variance.
    """

    def __init__(self, num_latents: int = 1, scale: float = 0.3, df: float = 4.0, min_scale: float = 0.0) -> None:
        super().__init__(num_latents, scale, min_scale)
        if not df > _MIN_DF:
            raise ValueError(f"Student-t noise needs df > {_MIN_DF:g}, got {df}.")
        self.log_df = nn.Parameter(torch.tensor(math.log(df - _MIN_DF), dtype=torch.float64))

    @property
    def df(self) -> Tensor:
        return self.log_df.exp().clamp_min(_LEAST_EXCESS) + _MIN_DF

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        df, spread = self.df, self.df * self.scale.square()
        const = _log_gamma_ratio(df / 2) - 0.5 * math.log(2 * math.pi) - self.scale.log()
        return (const - 0.5 * (df + 1) * torch.log1p(r.square() / spread)).to(r.dtype)

    def precision(self, c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return ((self.df + 1) / (self.df * self.scale.square() + c.square())).to(c.dtype)

    @torch.no_grad()
    def noise_variance(self) -> float:
        return float(self.scale.square() * self.df / (self.df - 2))


class Laplace(ScaledNoise):
    """g(r) = -log(2 scale) - |r| / scale, w(c) = 1 / (scale |c|).

    w is infinite at c = 0, so the bound takes |c| at scale / 1000 or above. This loses less than 0.0005 nats. ``scale`` is
    learned above ``min_scale``.
    """

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return (-torch.log(2 * self.scale) - r.abs() / self.scale).to(r.dtype)

    def precision(self, c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return 1 / (self.scale * c.abs()).to(c.dtype)

    def quadratic(self, y: Latents, local: Latents | None) -> Quadratic:
        floor = (_SHARPEST * self.scale.detach()).to(y.dtype)
        return super().quadratic(y, None if local is None else torch.maximum(local.abs(), floor))

    @torch.no_grad()
    def noise_variance(self) -> float:
        return float(2 * self.scale.square())


def _log_gamma_ratio(z: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The value of log Gamma(z + 1/2) - log Gamma(z) - 1/2 log z: -1/(8 z) + 1/(192 z^3), where z is large."""
    small = z.clamp_max(_LARGE)
    exact = torch.lgamma(small + 0.5) - torch.lgamma(small) - 0.5 * torch.log(small)
    return torch.where(z < _LARGE, exact, -1 / (8 * z) + 1 / (192 * z**3))
