"""Kuu as the model computes it."""

from torch import Tensor

from orbitgp.inference.orbit_gram import gram
from orbitgp.kernels import Covariance


def kuu(covariance: Covariance, z: Tensor) -> Tensor:
    """The covariance of g at points, or of its means over sets of points."""
    seen = covariance.features(z)
    return gram(covariance.of_features, seen[:, None] if z.ndim == 2 else seen)
