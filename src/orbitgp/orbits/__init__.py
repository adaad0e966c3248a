"""Orbits: what may happen to an input without changing the answer, their base draws and their composition."""

from orbitgp.orbits.base import Composition, FiniteOrbit, Identity, Orbit
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.finite import ChannelPermutation, Flip, Permutation, Reversal, Rotate90, Shuffle, SignChange
from orbitgp.orbits.images.affine import Affine, Rotation, Scale, Shear, Translation
from orbitgp.orbits.images.colour import Blur, Cutout, Gamma, Hue, Saturation, Stain
from orbitgp.orbits.images.deformation import LocalDeformation
from orbitgp.orbits.images.strokes import Thickness
from orbitgp.orbits.images.warps import ImageOrbit, Points, Warp, WarpProduct
from orbitgp.orbits.molecules import Atoms, NoisySort, coulomb_matrices
from orbitgp.orbits.sampling import Pairing, Samples
from orbitgp.orbits.signals.timewarp import TimeWarp
from orbitgp.orbits.signals.warps import SignalOrbit, SignalWarp, SignalWarpProduct, TimeScale, TimeShift
from orbitgp.orbits.values import Baseline, Brightness, Contrast, Gain, GaussianNoise, Offset, Smoothing
from orbitgp.orbits.weighted import FiniteProduct, Weighted

__all__ = [
    "Affine", "Atoms", "Baseline", "Blur", "Brightness", "ChannelPermutation", "Composition", "Contrast", "Cutout",
    "Description", "FiniteOrbit", "FiniteProduct", "Flip", "Gain", "Gamma", "GaussianNoise", "Hue", "Identity",
    "ImageOrbit", "LocalDeformation", "NoisySort", "Offset", "Orbit", "Pairing", "Permutation", "Points", "Quantity",
    "Reversal", "Rotate90", "Rotation", "Samples", "Saturation", "Scale", "Shear", "Shuffle", "SignChange",
    "SignalOrbit", "SignalWarp", "SignalWarpProduct", "Smoothing", "Stain", "Thickness", "TimeScale", "TimeShift",
    "TimeWarp", "Translation", "Warp", "WarpProduct", "Weighted", "coulomb_matrices",
]  # fmt: skip
