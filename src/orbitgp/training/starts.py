"""Where a run may begin: the evidence may have several tops over how far an orbit goes.

Three kinds of starts, for every family of orbits:

- the orbit as given, and narrower and wider by multiples of its reaches;
- the simpler orbits that it contains (:meth:`~orbitgp.orbits.Orbit.simpler`), with all else close to nothing. So a composition
  starts from its parts and ``Affine`` from a rotation, among others, and a richer family is not behind a simpler one;
- where the orbit as given hardly moves the inputs, or throws them far away, the orbit that moves them by a tenth of the
  distances between them, in place of the given one. So the unit of the inputs does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits import Orbit

CLOSE_TO_NOTHING = 0.1  # of its reach: what is left of the other parts, as the gradient vanishes at zero
SIMPLER_MULTIPLES = (1.0, 4.0)  # of the reach of a simpler orbit
_MOVES = (0.003, 10.0)  # of the distances between inputs: an orbit that moves less, or more, has another unit in mind
_TENTH = 0.1
_ROWS, _SAMPLES = 100, 8  # enough to see how far an orbit goes


@dataclass(frozen=True)
class Start:
    """A multiple of the orbit's reaches; of those that are not ``kept``, next to nothing is left."""

    multiple: float
    kept: tuple[int, ...] | None = None  # numbers of reaches; None keeps all of them

    @torch.no_grad()
    def apply(self, orbit: Orbit) -> None:
        """Move the orbit, which is as it was given, to this start."""
        for number, reach in enumerate(orbit.reaches()):
            reach.mul_(self.multiple if self.kept is None or number in self.kept else CLOSE_TO_NOTHING)


def possible_starts(orbit: Orbit, x: Float[Tensor, "rows *features"], multiples: tuple[float, ...]) -> list[Start]:
    """The starts of a run with these data. There is one where the orbit has no reach to learn, or one multiple is asked for."""
    reaches = orbit.reaches()
    if not reaches or len(multiples) < 2:
        return [Start(1.0)]
    unit = _in_units_of(x, orbit)
    starts = [Start(unit * multiple) for multiple in multiples]
    number = {id(reach): i for i, reach in enumerate(reaches)}
    for family in orbit.simpler():
        kept = tuple(sorted(number[id(reach)] for reach in family))
        starts += [Start(unit * multiple, kept) for multiple in SIMPLER_MULTIPLES]
    return starts


@torch.no_grad()
def _in_units_of(x: Float[Tensor, "rows *features"], orbit: Orbit) -> float:
    """What the reaches are to be multiplied by, so that they suit the distances between inputs: 1 where they do already."""
    some = x[:_ROWS]
    distances = torch.pdist(some.flatten(1).double())
    distances = distances[distances > 0]
    if not len(distances):
        return 1.0
    moved = (orbit.fixed(some, _SAMPLES).points[:, 0] - some[:, None]).flatten(2).double().norm(dim=-1)
    share = float(moved.square().mean().sqrt() / distances.median())
    return 1.0 if share == 0.0 or _MOVES[0] <= share <= _MOVES[1] else _TENTH / share
