"""Student-t noise: robust regression with a tail that is learned."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.likelihoods.noise import Noise

_MIN_DF = 2.0


class StudentT(Noise):
    """g(r) = log t_df(r / scale) - log scale, w(c) = (df + 1) / (df scale^2 + c^2).

    ``scale`` and ``df`` are learned; ``df`` stays above 2, so that the noise has a variance.
    """

    def __init__(self, num_latents: int = 1, scale: float = 0.3, df: float = 4.0) -> None:
        super().__init__(num_latents)
        if not (scale > 0 and df > _MIN_DF):
            raise ValueError(f"Student-t noise needs scale > 0 and df > {_MIN_DF:g}, got scale={scale} and df={df}.")
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), dtype=torch.float64))
        self.log_df = nn.Parameter(torch.tensor(math.log(df - _MIN_DF), dtype=torch.float64))

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    @property
    def df(self) -> Tensor:
        return self.log_df.exp() + _MIN_DF

    def log_density(self, r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        df, spread = self.df, self.df * self.scale.square()
        const = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - 0.5 * torch.log(math.pi * spread)
        return (const - 0.5 * (df + 1) * torch.log1p(r.square() / spread)).to(r.dtype)

    def precision(self, c: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return ((self.df + 1) / (self.df * self.scale.square() + c.square())).to(c.dtype)

    @torch.no_grad()
    def noise_variance(self) -> float:
        return float(self.scale.square() * self.df / (self.df - 2))
