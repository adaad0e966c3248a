"""Kernels of g, their expectations over orbits, and the invariant kernel of f."""

from orbitgp.kernels.covariance import Covariance
from orbitgp.kernels.dispatch import covariance
from orbitgp.kernels.feature_maps import FeatureMapKernel, SideBySide
from orbitgp.kernels.frame import Frame
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.kernels.oriented_gradients import OrientedGradients
from orbitgp.kernels.shape_histograms import ShapeHistograms
from orbitgp.kernels.spectra import SNV, SavitzkyGolay, SmoothDerivative

__all__ = [
    "SNV", "Covariance", "FeatureMapKernel", "Frame", "InvariantKernel", "OrientedGradients", "SavitzkyGolay",
    "ShapeHistograms", "SideBySide", "SmoothDerivative", "covariance",
]  # fmt: skip
