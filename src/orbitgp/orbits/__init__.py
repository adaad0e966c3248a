"""Orbits: what may happen to an input without changing the answer, their base draws and their composition."""

from orbitgp.orbits.base import Composition, FiniteOrbit, FiniteProduct, Identity, Orbit
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.images.affine import Affine, Rotation, Scale, Shear, Translation
from orbitgp.orbits.images.base import ImageOrbit
from orbitgp.orbits.images.deformation import LocalDeformation
from orbitgp.orbits.images.flips import Flip, Rotate90
from orbitgp.orbits.images.intensity import Brightness, Contrast
from orbitgp.orbits.images.points import Points
from orbitgp.orbits.images.tangent import TangentDeformation
from orbitgp.orbits.images.thickness import Thickness
from orbitgp.orbits.images.warps import Warp, WarpProduct
from orbitgp.orbits.noise import GaussianNoise
from orbitgp.orbits.permutation import Permutation
from orbitgp.orbits.sampling import Pairing, Samples
from orbitgp.orbits.signals.base import SignalOrbit
from orbitgp.orbits.signals.finite import ChannelPermutation, Reversal
from orbitgp.orbits.signals.resolution import Dropout, Smoothing
from orbitgp.orbits.signals.time import TimeScale, TimeShift
from orbitgp.orbits.signals.timewarp import TimeWarp
from orbitgp.orbits.signals.values import Baseline, Gain, Offset
from orbitgp.orbits.signals.warps import SignalWarp, SignalWarpProduct

__all__ = [
    "Affine", "Baseline", "Brightness", "ChannelPermutation", "Composition", "Contrast", "Description", "Dropout",
    "FiniteOrbit", "FiniteProduct", "Flip", "Gain", "GaussianNoise", "Identity", "ImageOrbit", "LocalDeformation",
    "Offset", "Orbit", "Pairing", "Permutation", "Points", "Quantity", "Reversal", "Rotate90", "Rotation", "Samples",
    "Scale", "Shear", "SignalOrbit", "SignalWarp", "SignalWarpProduct", "Smoothing", "TangentDeformation", "Thickness",
    "TimeScale", "TimeShift", "TimeWarp", "Translation", "Warp", "WarpProduct",
]  # fmt: skip
