"""What tests of many layers share: exact moments of a Gaussian, and a likelihood of one's own that couples latent functions."""

from __future__ import annotations

import torch
from torch import Tensor

from orbitgp.likelihoods import Classification, Moments, Quadratic
from orbitgp.likelihoods.base import required, root_second
from orbitgp.likelihoods.logistic import pg_const, pg_mean


def gaussian_moments(mean: Tensor, variance: Tensor, cross: bool = False) -> Moments:
    """The exact moments of q(f) = N(mean, diag variance)."""
    outer = mean[:, :, None] * mean[:, None, :] + torch.diag_embed(variance) if cross else None
    return Moments(mean, mean.square() + variance, outer)


class Difference(Classification):
    """p(class 1 | f) = sigma(d), d = f_1 - f_0: two latent functions, a local parameter c and a full matrix ``lam``.

    log sigma(+-d) >= k(c) +- d/2 - 1/2 w(c) d^2, and d^2 holds f_0 f_1. The best c is sqrt(E d^2).
    """

    couples = True
    num_locals = 1

    def __init__(self) -> None:
        super().__init__(num_classes=2, num_latents=2)

    @torch.no_grad()
    def local(self, y: Tensor, moments: Moments) -> Tensor:
        assert moments.cross is not None
        f = moments.cross
        return root_second(f[:, 0, 0] - 2 * f[:, 0, 1] + f[:, 1, 1], moments.mean[:, 1] - moments.mean[:, 0])[:, None]

    def quadratic(self, y: Tensor, local: Tensor | None) -> Quadratic:
        c = required(local)
        difference = c.new_tensor([[1.0, -1.0], [-1.0, 1.0]])  # d^2 = f . difference f
        return Quadratic(pg_const(c)[:, 0], y - 0.5, pg_mean(c)[:, :, None] * difference)

    def log_probs(self, f: Tensor) -> Tensor:
        return torch.log_softmax(f, -1)
