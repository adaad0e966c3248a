"""What may change: orbits, base draws, and their composition."""

from orbitgp.orbits.affine import Affine, Rotation, Scale, Shear, Translation
from orbitgp.orbits.base import Description, Orbit, Pairing, Quantity, Samples
from orbitgp.orbits.composition import Composition
from orbitgp.orbits.deformation import LocalDeformation
from orbitgp.orbits.finite import FiniteOrbit, FiniteProduct, Flip, Identity, Permutation, Rotate90
from orbitgp.orbits.images import ImageOrbit
from orbitgp.orbits.intensity import Brightness, Contrast
from orbitgp.orbits.noise import GaussianNoise
from orbitgp.orbits.points import Points
from orbitgp.orbits.tangent import TangentDeformation
from orbitgp.orbits.thickness import Thickness
from orbitgp.orbits.warps import Warp, WarpProduct

__all__ = [
    "Affine",
    "Brightness",
    "Composition",
    "Contrast",
    "Description",
    "FiniteOrbit",
    "FiniteProduct",
    "Flip",
    "GaussianNoise",
    "Identity",
    "ImageOrbit",
    "LocalDeformation",
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
    "TangentDeformation",
    "Thickness",
    "Translation",
    "Warp",
    "WarpProduct",
]
