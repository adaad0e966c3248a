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

__all__ = [
    "Affine", "Brightness", "Composition", "Contrast", "Description", "FiniteOrbit", "FiniteProduct", "Flip",
    "GaussianNoise", "Identity", "ImageOrbit", "LocalDeformation", "Orbit", "Pairing", "Permutation", "Points", "Quantity",
    "Rotate90", "Rotation", "Samples", "Scale", "Shear", "TangentDeformation", "Thickness", "Translation", "Warp",
    "WarpProduct",
]  # fmt: skip
