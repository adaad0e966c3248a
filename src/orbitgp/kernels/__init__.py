"""Kernels of g, their expectations over orbits, and the invariant kernel of f."""

from orbitgp.kernels.backbone import Backbone
from orbitgp.kernels.convolutional import ConvolutionalKernel, PatchVectors
from orbitgp.kernels.covariance import Covariance, covariance
from orbitgp.kernels.feature_maps import FeatureMapKernel, MeanEmbedding, SideBySide
from orbitgp.kernels.image_maps import Frame, OrientedGradients
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.kernels.molecule_maps import Surroundings
from orbitgp.kernels.patches import PatchDictionary
from orbitgp.kernels.signal_maps import SNV, ShapeHistograms, SmoothDerivative

__all__ = [
    "SNV", "Backbone", "ConvolutionalKernel", "Covariance", "FeatureMapKernel", "Frame", "InvariantKernel",
    "MeanEmbedding", "OrientedGradients", "PatchDictionary", "PatchVectors", "ShapeHistograms", "SideBySide",
    "SmoothDerivative", "Surroundings", "covariance",
]  # fmt: skip
