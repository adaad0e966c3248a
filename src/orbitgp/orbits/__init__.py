"""What may change: orbits, base draws, and their composition."""

from orbitgp.orbits.affine import Affine, Rotation, Scale, Shear, Translation
from orbitgp.orbits.base import Description, Orbit, Pairing, Quantity, Samples
from orbitgp.orbits.composition import Composition
from orbitgp.orbits.finite import FiniteOrbit, FiniteProduct, Flip, Identity, Permutation, Rotate90
from orbitgp.orbits.noise import GaussianNoise
from orbitgp.orbits.points import Points
from orbitgp.orbits.warps import Warp, WarpProduct

__all__ = [
    "Affine",
    "Composition",
    "Description",
    "FiniteOrbit",
    "FiniteProduct",
    "Flip",
    "GaussianNoise",
    "Identity",
    "Orbit",
    "Pairing",
    "Permutation",
    "Points",
    "Quantity",
    "Rotate90",
    "Rotation",
    "Samples",
    "Scale",
    "Shear",
    "Translation",
    "Warp",
    "WarpProduct",
]
