"""What may change: orbits, base draws, and their composition."""

from orbitgp.orbits.base import Description, Orbit, Pairing, Quantity, Samples
from orbitgp.orbits.composition import Composition
from orbitgp.orbits.finite import FiniteOrbit, FiniteProduct, Flip, Identity, Permutation, Rotate90
from orbitgp.orbits.noise import GaussianNoise

__all__ = [
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
    "Quantity",
    "Rotate90",
    "Samples",
]
