"""Molecules as sums over their atoms: the orbit of a molecule is what is seen from each of its atoms.

A molecule is an array (atoms, 4): the charge of each nucleus and its place in space. Rows of charge zero are no atoms,
so that all molecules have equally many rows. With the molecule x_a as atom a sees it,

    f(x) = 1/A sum_a g(x_a),        k_f(x, x') = 1/A^2 sum_a sum_b k_g(x_a, x'_b).

That is a property to which every atom contributes by what is around it, as an energy is. A is the number of rows, the
same for all molecules: f is a sum in fixed units, and grows with a molecule. The order of the atoms does not matter.
With a feature map such as :class:`orbitgp.kernels.Surroundings`, neither do rotations, reflections and translations.

A Coulomb matrix is a molecule without its place in space, but with an order of its atoms. :class:`NoisySort` averages
over the likely ones.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Real
from torch import nn

from orbitgp.orbits.base import FiniteOrbit, Orbit
from orbitgp.orbits.ranges import Number
from orbitgp.orbits.sampling import Draws, Elements, Inputs, Transformed

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


def coulomb_matrices(
    numbers: Real[np.ndarray, "rows atoms"], positions: Real[np.ndarray, "rows atoms 3"]
) -> Float[np.ndarray, "rows atoms atoms"]:
    """Z_i Z_j / |R_i - R_j|, and Z_i^2.4 / 2 on the diagonal: in hartree, if positions are in bohr.

    Charges of zero are no atoms: their rows and columns are zero, wherever they lie.

        >>> coulomb_matrices(np.array([[8, 1, 0]]), np.array([[[0, 0, 0], [0, 0, 2], [0, 0, 0]]])).round(1).tolist()
        [[[73.5, 4.0, 0.0], [4.0, 0.5, 0.0], [0.0, 0.0, 0.0]]]
    """
    if (numbers < 0).any():
        raise ValueError(f"charges of nuclei must be positive, or 0 for no atom, got {numbers.min()}.")
    charges = numbers[:, :, None] * numbers[:, None].astype(float)
    apart = np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1)
    itself = np.eye(numbers.shape[1], dtype=bool)
    if len(same := np.argwhere((apart == 0) & (charges > 0) & ~itself)):
        raise ValueError(f"atoms {same[0, 1]} and {same[0, 2]} of molecule {same[0, 0]} are at the same place.")
    between = np.divide(charges, apart, out=np.zeros_like(charges), where=(charges > 0) & ~itself)
    return between + itself * (0.5 * numbers[..., None] ** 2.4)


class NoisySort(Orbit):
    """Rows and columns of a Coulomb matrix in the order of noisy norms of its rows (Montavon et al. 2012).

    A draw of the orbit adds ``noise * e``, e ~ N(0, I), to the norms of the rows, and sorts by the sums, the largest
    first. So equal or nearly equal atoms are exchanged, and more noise exchanges more. It has the unit of the matrix,
    as made by :func:`coulomb_matrices`. Rows without an atom stay last. Noise is added to the norms in their order, so
    that the order of the atoms in the input matters only where norms are equal.

    An order has no gradient in the noise. What learns it are the starts of exact inference and the neighbours of their
    best: wider and narrower ones.

        >>> matrices = torch.tensor([[[9.0, 3.0, 1.0], [3.0, 0.5, 0.4], [1.0, 0.4, 0.25]]])
        >>> drawn = NoisySort(2.0).sample(matrices, 64, generator=torch.Generator().manual_seed(0)).points
        >>> drawn.diagonal(dim1=-2, dim2=-1).flatten(0, 2).unique(dim=0).tolist()  # nearly equal atoms change places
        [[9.0, 0.25, 0.5], [9.0, 0.5, 0.25]]

    Args:
        noise: the standard deviation to start from. Zero, the plain sort, is for ``learn=False`` alone.
        learn: whether the noise is learned.
    """

    reach = ("noise",)
    in_units_of_inputs = True

    def __init__(self, noise: Number = 1.0, learn: bool = True) -> None:
        super().__init__()
        if not (noise > 0 or (noise == 0 and not learn)):
            raise ValueError(f"noise must be positive, or 0 with learn=False, got {noise}.")
        self.noise = nn.Parameter(torch.tensor(float(noise)), requires_grad=learn)

    def draws_for(self, features: torch.Size) -> int:
        return features[-1]

    def check(self, features: torch.Size) -> None:
        if len(features) != 2 or features[0] != features[1]:
            raise ValueError(f"NoisySort acts on matrices (atoms, atoms), but inputs have shape {tuple(features)}.")

    def without_reach(self) -> Orbit:
        return PlainSort()

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        norms, plain = x.detach().norm(dim=-1).sort(dim=-1, descending=True, stable=True)
        noisy = norms[:, None] + self.noise.detach() * torch.special.ndtri(u)
        last = noisy.masked_fill(norms[:, None] == 0, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        order = plain[:, None].expand_as(last).gather(-1, last)
        rows = torch.arange(x.shape[0], device=x.device)[:, None, None, None]
        return x[rows, order[..., None], order[..., None, :]] + 0.0 * self.noise  # the gradient in the noise is zero


class PlainSort(FiniteOrbit):
    """Rows and columns of a Coulomb matrix in the order of the norms of its rows, as :class:`NoisySort` without noise.

    >>> PlainSort().elements(torch.tensor([[[0.5, 3.0], [3.0, 9.0]]]))[0, 0].tolist()
    [[9.0, 3.0], [3.0, 0.5]]
    """

    size = 1

    def elements(self, x: Inputs) -> Elements:
        return NoisySort(0.0, learn=False).to(x).transform(x, x.new_full((x.shape[0], 1, x.shape[-1]), 0.5))
