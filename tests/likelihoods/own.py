"""What tests of many layers share: exact moments of a Gaussian."""

from __future__ import annotations

from torch import Tensor

from orbitgp.likelihoods import Moments


def gaussian_moments(mean: Tensor, variance: Tensor) -> Moments:
    """The exact moments of q(f) = N(mean, diag variance)."""
    return Moments(mean, mean.square() + variance)
