"""The prior mean of g."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

MeanName = Literal["zero", "constant", "linear"]


class PriorMean(nn.Module):
    """m_g(x) = bias + W (x - centre) / unit: ``zero``, ``constant`` or ``linear``, for each latent function.

    ``centre`` and ``unit`` are where the first inducing points lie and how far apart: W learns alike in any units of x.
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
        inducing = inducing.detach().double().cpu()
        spread = inducing.var(0, correction=0).mean().sqrt()
        self.register_buffer("centre", inducing.mean(0))
        self.register_buffer("unit", torch.where(spread > 0, spread, 1.0))

    def forward(self, xa: Float[Tensor, "rows blocks size dim"]) -> Float[Tensor, "rows blocks latents"]:
        """The block means of m_g: linear in x, so the mean of the samples is enough."""
        if self.weight is None:
            return self.bias.expand(*xa.shape[:2], -1)
        return (xa.mean(2).double() - self.centre) / self.unit @ self.weight + self.bias
