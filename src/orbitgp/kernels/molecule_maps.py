"""A feature map for molecules: which atoms lie how far away from the first.

It makes a kernel of what one atom sees. With the orbit :class:`orbitgp.orbits.Atoms` every atom is the first in turn,
and the kernel of molecules is the mean over all pairs of atoms.
"""

from __future__ import annotations

from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.learned_constants import LearnedConstants, without_tails
from orbitgp.machine import constant

_NEAREST = 0.7  # ångström, the innermost shell: hydrogen atoms in H2 are 0.74 apart
_TOGETHER = 1e-2  # ångström, below which atoms are taken to be this far apart


class Surroundings(LearnedConstants):
    """The atoms around the first atom, by element and distance, and which element that atom is.

    With r_j the distance of atom j and R_k the radii of shells, evenly spaced in logarithm, element e has features

        q_ek = sum_j of e  r_j^-power  cos^2(pi r_j / (2 reach))  exp(-1/2 (log(r_j / R_k) / width)^2),

    where atoms beyond the reach do not count. So bonds are resolved finely and what is far away coarsely. The element
    of the first atom adds a vector of length ``apart`` in a direction of its own. Everything is smooth in the places of
    atoms. It does not change with rotations, reflections, translations, and exchanges of other atoms of one element.
    Angles are no features of one atom: distances imply them, where every atom is the first in turn.

        >>> water = torch.tensor([[[8.0, 0, 0, 0.12], [1.0, 0, 0.76, -0.47], [1.0, 0, -0.76, -0.47]]])
        >>> Surroundings((1, 8))(water).shape
        torch.Size([1, 82])

    Args:
        elements: the charges of all nuclei that occur.
        shells: how many radii there are.
        reach: how far an atom sees, in the units of places (ångström).
        width: of a shell, in logarithms of distances.
        power: by which what is near counts more.
        apart: how far apart atoms of two elements are, whatever is around them, over the square root of two.
        learn: whether width, power and apart are learned, starting at these values.
    """

    fixed = ("elements", "shells", "reach")

    def __init__(
        self,
        elements: tuple[int, ...] = (1, 6, 7, 8),
        shells: int = 40,
        reach: float = 5.0,
        width: float = 0.05,
        power: float = 2.0,
        apart: float = 5.0,
        learn: bool = True,
    ) -> None:
        super().__init__(learn, width=width, power=power, apart=apart)
        self.elements, self.shells, self.reach = tuple(int(charge) for charge in elements), shells, reach
        if not elements or min(self.elements) < 1 or len(set(self.elements)) < len(self.elements):
            raise ValueError(f"elements must be different positive charges, got {self.elements}.")
        if shells < 2 or not reach > _NEAREST:
            raise ValueError(f"shells must be at least 2 and reach above {_NEAREST}, got {shells} and {reach}.")

    def forward(self, x: Float[Tensor, "rows atoms numbers"]) -> Float[Tensor, "rows mapped"]:
        if x.shape[-1] != 4:
            raise ValueError(f"Surroundings takes molecules (atoms, 4), but inputs have shape {tuple(x.shape[1:])}.")
        width, power, apart = self.constants(x.dtype)
        charges, places = x[..., 0], x[..., 1:]
        is_element = charges[..., None] == torch.tensor(self.elements, dtype=x.dtype, device=x.device)
        if len(unknown := charges[(charges != 0) & ~is_element.any(-1)]):
            raise ValueError(f"a nucleus has charge {unknown[0]:g}, which is not among elements={self.elements}.")
        first, others = is_element[:, 0].to(x.dtype), is_element[:, 1:].to(x.dtype)
        logs = (places[:, 1:] - places[:, :1]).square().sum(-1).clamp(min=_TOGETHER**2).log() / 2
        near = torch.cos(logs.exp().clamp(max=self.reach) * (torch.pi / (2 * self.reach))).square()
        shells = _log_radii(self.shells, self.reach, dtype=x.dtype, device=x.device)
        density = without_tails((-0.5 * ((logs[..., None] - shells) / width).square()).exp())
        density = density * (near * (-power * logs).exp())[..., None]
        seen = (others.mT @ density).flatten(1) * first.sum(1, keepdim=True)  # nothing, where the first is no atom
        return torch.cat([seen, apart * first], 1)


@constant
def _log_radii(shells: int, reach: float) -> Float[Tensor, " shells"]:
    return torch.linspace(log(_NEAREST), log(reach), shells, dtype=torch.float64)
