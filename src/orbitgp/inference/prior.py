"""What exact and sparse models share: the prior mean of g, and draws of f."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

MeanName = Literal["zero", "constant", "linear"]
Means = Float[Tensor, "rows latents"]

_NOISE_OVER_ROUNDING = 1e3  # the least noise, in units of the rounding of a kernel, that single precision is enough for


@torch.no_grad()
def single_precision_suffices(noise: Tensor, variance: Tensor, dtype: torch.dtype) -> bool:
    """Whether the noise lies far above the rounding of a kernel in this precision: solutions divide by it."""
    return bool(noise.min() > _NOISE_OVER_ROUNDING * torch.finfo(dtype).eps * variance.max())


class PriorMean(nn.Module):
    """m_g(x) = bias + W (x - centre) / unit: ``zero``, ``constant`` or ``linear``, for each latent function.

    ``centre`` and ``unit`` say where the inputs of g lie: W learns alike in any units of x. They start from the
    inducing points. :meth:`place` takes them from orbit samples of the data, which one inducing point cannot tell.
    """

    centre: Tensor
    unit: Tensor

    def __init__(self, name: MeanName, inducing: Float[Tensor, "inducing dim"], num_latents: int) -> None:
        super().__init__()
        if name not in ("zero", "constant", "linear"):
            raise ValueError(f"mean must be 'zero', 'constant' or 'linear', got {name!r}.")
        zeros = torch.zeros(num_latents, dtype=torch.float64)
        self.bias = nn.Parameter(zeros, requires_grad=name != "zero")
        self.weight = nn.Parameter(zeros.new_zeros(inducing.shape[1], num_latents)) if name == "linear" else None
        self.register_buffer("centre", zeros.new_zeros(inducing.shape[1]))
        self.register_buffer("unit", zeros.new_ones(()))
        self.place(inducing.detach().cpu())

    @torch.no_grad()
    def place(self, points: Float[Tensor, "points dim"]) -> None:
        """Let the mean be linear around these points, in units of how far apart they are."""
        points = points.double()
        spread = points.var(0, correction=0).mean().sqrt()
        self.centre.copy_(points.mean(0))
        self.unit.copy_(torch.where(spread > 0, spread, 1.0))

    @torch.no_grad()
    def set_bias(self, bias: Float[Tensor, " latents"] | None) -> None:
        """Let this be the constant, if one was found."""
        if bias is not None and bias.isfinite().all():
            self.bias.copy_(bias)

    def without_bias(self, means: Means) -> Means:
        """Prior means less a constant that is to be found."""
        return means - self.bias if self.bias.requires_grad else means

    def forward(self, xa: Float[Tensor, "rows blocks size dim"]) -> Float[Tensor, "rows blocks latents"]:
        """The block means of m_g: linear in x, so the mean of the samples is enough."""
        if self.weight is None:
            return self.bias.expand(*xa.shape[:2], -1)
        return (xa.mean(2).double() - self.centre) / self.unit @ self.weight + self.bias


def draw_normal(
    mean: Means, covariance: Float[Tensor, "anylatents rows rows"], count: int, generator: torch.Generator | None = None
) -> Float[Tensor, "count rows latents"]:
    """Draws from N(mean, covariance) of each latent function."""
    # Eigenvalues below zero are rounding: an invariant posterior is singular at inputs that share an orbit.
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()[:, None, :]
    noise = torch.randn(count, *mean.mT.shape, 1, generator=generator, dtype=mean.dtype)
    return mean + (root @ noise.to(mean.device))[..., 0].mT
