"""Two classes by the logistic function: section 4.5 of the paper."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from orbitgp.likelihoods.base import Moments, Quadratic, required
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.polyagamma import pg_const, pg_mean, root_second


class Bernoulli(Classification):
    """p(y | f) = sigma(y f) with y = -1 or +1; eta = y/2, lam = w(c), const = k(c).

    :mod:`~orbitgp.likelihoods.polyagamma` defines w and k. The local parameter is c, and the best c is sqrt(E f^2).
    The bound is exact for a point mass at |f| = c.
    """

    num_locals = 1

    def __init__(self) -> None:
        super().__init__(num_classes=2, num_latents=1)

    def encode(self, labels: Int[Tensor, " rows"], dtype: torch.dtype = torch.float64) -> Float[Tensor, "rows outputs"]:
        """-1 for class 0, +1 for class 1."""
        return (2 * labels[:, None] - 1).to(dtype)

    @torch.no_grad()
    def local(self, y: Float[Tensor, "rows 1"], moments: Moments) -> Float[Tensor, "rows 1"]:
        return root_second(moments.second, moments.mean)

    def quadratic(self, y: Float[Tensor, "rows 1"], local: Float[Tensor, "rows 1"] | None) -> Quadratic:
        c = required(local)
        return Quadratic(pg_const(c)[:, 0], 0.5 * y, pg_mean(c))

    def log_probs(self, f: Float[Tensor, "*samples rows 1"]) -> Float[Tensor, "*samples rows 2"]:
        return logsigmoid(torch.cat([-f, f], -1))

    def log_prob(self, y: Float[Tensor, "rows 1"], f: Float[Tensor, "*samples rows 1"]) -> Float[Tensor, "*samples rows"]:
        return logsigmoid(y * f)[..., 0]
