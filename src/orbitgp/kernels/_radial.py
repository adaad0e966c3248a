"""Profiles: a stationary kernel as a function of the scaled squared distance, with its slope."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

Distances = Float[Tensor, "rows blocks size inducing"]
Means = Float[Tensor, "rows blocks inducing"]


class Profile:
    """k as a function of h = kappa * d^2, and its slope, dk/dh = rate * slope.

    ``smooth``: the slope is bounded. Where it is not, the rounding error of a small distance can grow without bound, so TF32
    must not be used.
    """

    kappa: float = 1.0
    rate: float = 1.0
    smooth: bool = True

    def value(self, h: Tensor) -> Tensor:
        """Only k; may overwrite h."""
        raise NotImplementedError

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Both k and its slope, the slope in the memory of h."""
        raise NotImplementedError

    def differentiable(self, h: Tensor) -> Tensor:
        """Only k, by operations that autograd can follow."""
        raise NotImplementedError

    def value_means(self, h: Distances, out: Means, slope: bool) -> None:
        """Write the means of k over each block to ``out`` and, with ``slope``, the slope to the memory of h."""
        _block_means(self.value_and_slope(h)[0] if slope else self.value(h), out)

    def pair_sums(self, d2: Tensor, scale: Tensor, weights: Tensor, with_itself: bool) -> tuple[Tensor, Tensor]:
        """Weighted sums of k over all pairs of a datum's samples, and the slopes; ``with_itself``: both sides are the same."""
        k, slope = self.value_and_slope(d2 * scale)
        if with_itself:
            # A sample with itself: a kernel with a kink takes the root of the distance, so rounding must not make one.
            k.diagonal(dim1=-2, dim2=-1).fill_(1.0)
            d2.diagonal(dim1=-2, dim2=-1).zero_()
            if slope is not k:
                slope.diagonal(dim1=-2, dim2=-1).zero_()
        return (k * weights).sum((-2, -1)), slope


class RBF(Profile):
    """k = 2^h, h = -d^2 / (2 log 2): k is its own slope, so only k is kept. (2^h takes two thirds of the time of e^h.)"""

    kappa = -0.5 / math.log(2)
    rate = math.log(2)

    def value(self, h: Tensor) -> Tensor:
        return h.exp2_()

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        k = h.exp2_()
        return k, k

    def differentiable(self, h: Tensor) -> Tensor:
        return h.exp2()


class Matern(Profile):
    """nu = 1/2, 3/2, 5/2 in s = sqrt(2 nu d^2), with GPyTorch's floor on s."""

    def __init__(self, nu: float) -> None:
        self.nu = nu
        self.smooth = nu > 0.5

    def value(self, h: Tensor) -> Tensor:
        s, e = self._root_and_decay(h)
        return e if self.nu == 0.5 else self._polynomial(s).mul_(e)

    def value_and_slope(self, h: Tensor) -> tuple[Tensor, Tensor]:
        s, e = self._root_and_decay(h)
        if self.nu == 0.5:
            return e, s.reciprocal_().mul_(e).mul_(-0.5)
        k = self._polynomial(s).mul_(e)
        if self.nu == 1.5:
            return k, s.copy_(e).mul_(-1.5)
        return k, s.add_(1).mul_(e).mul_(-5 / 6)

    def differentiable(self, h: Tensor) -> Tensor:
        s = (2 * self.nu * h).clamp_min(_floor(h)).sqrt()
        if self.nu == 0.5:
            return torch.exp(-s)
        return (1 + s if self.nu == 1.5 else 1 + s + s.square() / 3) * torch.exp(-s)

    def _root_and_decay(self, h: Tensor) -> tuple[Tensor, Tensor]:
        s = h.mul_(2 * self.nu).clamp_min_(_floor(h)).sqrt_()
        return s, torch.neg(s).exp_()

    def _polynomial(self, s: Tensor) -> Tensor:
        return s + 1 if self.nu == 1.5 else (s / 3).add_(1).mul_(s).add_(1)


def _floor(h: Tensor) -> float:
    return 1e-15 if h.dtype == torch.float64 else 1e-12


def _block_means(k: Distances, out: Means) -> None:
    """The mean over each block. Long blocks are a product, because torch sums long middle axes five times slower."""
    size, inducing = k.shape[2:]
    if k.device.type == "cpu" and size * inducing >= 2**15:
        weights = k.new_full((1, 1, size), 1 / size).expand(len(k) * k.shape[1], -1, -1)
        torch.bmm(weights, k.flatten(0, 1), out=out.view(-1, 1, inducing))
    else:
        torch.mean(k, 2, out=out)
