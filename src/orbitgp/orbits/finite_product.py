"""Finite orbits that act one after the other: again a finite orbit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.base import FiniteOrbit, Parts
from orbitgp.orbits.description import Description
from orbitgp.orbits.sampling import Elements, Inputs


class FiniteProduct(FiniteOrbit, Parts):
    """Each element of the first part, followed by each of the second, and so on. Probabilities are products, too."""

    parts: Sequence[FiniteOrbit]

    def __init__(self, parts: Sequence[FiniteOrbit]) -> None:
        super().__init__(parts)
        self.size = prod(part.size for part in self.parts)

    def elements(self, x: Inputs) -> Elements:
        xa = x[:, None]
        for part in self.parts:
            xa = part.elements(xa.flatten(0, 1)).reshape(x.shape[0], -1, *x.shape[1:])
        return xa

    def weights(self) -> Float[Tensor, " size"] | None:
        found = [part.weights() for part in self.parts]
        known = [weights for weights in found if weights is not None]
        if not known:
            return None
        each = [known[0].new_ones(p.size) / p.size if w is None else w for p, w in zip(self.parts, found, strict=True)]
        return reduce(lambda before, after: before.outer(after).flatten(), each)  # the last part varies fastest

    def describe(self) -> Description:
        """The number of elements, or what is learned of their weights."""
        return FiniteOrbit.describe(self) if self.weights() is None else Parts.describe(self)


FiniteOrbit.product = FiniteProduct
