"""What tests of many layers share: exact moments of a Gaussian, and likelihoods by name."""

from __future__ import annotations

from torch import Tensor

from experiments.stick_breaking import StickBreaking
from orbitgp.likelihoods import Classification, Moments, make_likelihood


def gaussian_moments(mean: Tensor, variance: Tensor) -> Moments:
    """The exact moments of q(f) = N(mean, diag variance)."""
    return Moments(mean, mean.square() + variance)


def make_classes(name: str, num_classes: int) -> Classification:
    """The likelihood of this name, or the one of our own that has several decisions."""
    found = StickBreaking(num_classes) if name == "stick-breaking" else make_likelihood(name, num_classes=num_classes)
    assert isinstance(found, Classification)
    return found
