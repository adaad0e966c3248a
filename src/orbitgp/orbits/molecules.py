"""Molecules as sums over their atoms: the orbit of a molecule is what is seen from each of its atoms.

A molecule is an array (atoms, 4): the charge of each nucleus and its place in space. Rows of charge zero are no atoms,
so that all molecules have equally many rows. With the molecule x_a as atom a sees it,

    f(x) = 1/A sum_a g(x_a),        k_f(x, x') = 1/A^2 sum_a sum_b k_g(x_a, x'_b).

That is a property to which every atom contributes by what is around it, as an energy is. A is the number of rows, the
same for all molecules: f is a sum in fixed units, and grows with a molecule. The order of the atoms does not matter.
With a feature map such as :class:`orbitgp.kernels.Surroundings`, neither do rotations, reflections and translations.
"""

from __future__ import annotations

import torch

from orbitgp.orbits.base import FiniteOrbit
from orbitgp.orbits.sampling import Elements, Inputs

_PER_ATOM = 4  # numbers: its charge, and three coordinates


class Atoms(FiniteOrbit):
    """The molecule with each of its atoms in turn as the first row.

        >>> water = torch.tensor([[[8.0, 0, 0, 0.12], [1.0, 0, 0.76, -0.47], [1.0, 0, -0.76, -0.47]]])
        >>> Atoms(3).elements(water)[0, :, 0, 0].tolist()
        [8.0, 1.0, 1.0]

    Args:
        size: the rows of each molecule, which is how many atoms the largest has.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 3:
            raise ValueError(f"Atoms needs at least 3 rows a molecule, got {size}: add rows of charge 0.")
        self.size = int(size)

    def check(self, features: torch.Size) -> None:
        if tuple(features) != (self.size, _PER_ATOM):
            expected = f"molecules ({self.size}, {_PER_ATOM}), the charge and the place of each atom"
            raise ValueError(f"Atoms({self.size}) acts on {expected}, but inputs have shape {tuple(features)}.")

    def elements(self, x: Inputs) -> Elements:
        self.check(x.shape[1:])
        order = torch.arange(self.size, device=x.device).repeat(self.size, 1)
        order[:, 0] = torch.arange(self.size)  # atom a changes places with the first
        order.diagonal().zero_()
        return x[:, order]
