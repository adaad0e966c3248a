"""Finite orbits made of others: with elements that are not equally likely, and one after the other.

Weights say that symmetries hold in part, by as much as the data support.

With probabilities w_i of the elements g_i of an orbit, the first of which is the identity,

    f(x) = sum_i w_i g(g_i x),        k_f(x, x') = sum_i sum_j w_i w_j k_g(g_i x, g_j x').

w = (1, 0, 0, …) is no invariance, and equal probabilities are the whole symmetry. Between them f mixes an invariant
function and one that is not. For two elements with probabilities 1 - w and w, on a group that k_g does not see, that is

    k_f(x, x') = (1 - 2 w (1 - w)) k_g(x, x') + 2 w (1 - w) k_g(x, g x'):

at w = 1/2 both terms count alike, and w and 1 - w are the same model. For any such group G the double sum is a single
one, whose weights are the autocorrelation of w (:mod:`orbitgp.kernels.orbit_average`). It does not change when all g_i
are followed by one and the same element. So the identity may be taken for the most probable element, and the
probability of each other is a share a_i = s_i^2 of it:

    w_0 = 1 / (1 + sum_i a_i),    w_i = a_i / (1 + sum_i a_i),    0 <= s_i <= 1.

Both ends are within reach: s is reflected at 0 and at 1, and w is smooth there. Nothing is drawn, so nothing is biased.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.base import FiniteOrbit, Orbit, Parts
from orbitgp.orbits.description import Description, Quantity
from orbitgp.orbits.ranges import Number, reflected
from orbitgp.orbits.sampling import Elements, Inputs


class Weighted(FiniteOrbit):
    """A finite orbit whose other elements have a learned probability, each the same, or with ``each`` one of its own.

    ``Weighted(Flip())`` is a mirror image with a learned weight between 0 (absent) and 1/2 (a full symmetry), and
    ``Weighted(Permutation.swap(0, 1)) * Weighted(Permutation.swap(2, 3))`` has a probability for each generator. It
    takes exact inference.

        >>> Weighted(Flip()).describe()
        Weighted Flip
          weight  0.25

    Args:
        orbit: a finite orbit of P elements, the first of which is the identity.
        weight: the probability of each other element at the start, at most 1/P; by default half of that.
        each: whether each other element has a probability of its own.
        learn: whether it is learned.
    """

    bounded = ("root_share",)

    def __init__(self, orbit: Orbit, weight: Number | None = None, each: bool = False, learn: bool = True) -> None:
        super().__init__()
        if not isinstance(orbit, FiniteOrbit) or orbit.size < 2 or orbit.weights() is not None:
            raise ValueError(f"Weighted needs a finite orbit of several elements without weights, got {orbit!r}.")
        self.orbit, self.size, self.each = orbit, orbit.size, each
        weight = 0.5 / self.size if weight is None else float(weight)
        if not 0 < weight <= 1 / self.size:
            raise ValueError(f"weight must lie above 0 and be at most 1/{self.size}, each one's share, got {weight}.")
        share = weight / (1 - (self.size - 1) * weight)
        start = torch.full((self.size - 1,) if each else (), share, dtype=torch.float64).sqrt()
        self.root_share = nn.Parameter(start, requires_grad=learn)

    def check(self, features: torch.Size) -> None:
        self.orbit.check(features)
        x = torch.rand(1, *features, generator=torch.Generator().manual_seed(0)).to(self.root_share.device)
        if not torch.equal(self.orbit.elements(x)[:, 0], x):
            raise ValueError(f"the first element of {self.orbit!r} must be the identity for weights: put it first.")

    def elements(self, x: Inputs) -> Elements:
        return self.orbit.elements(x)

    def weights(self) -> Float[Tensor, " size"]:
        shares = reflected(self.root_share, 1.0).square().expand(self.size - 1)
        return torch.cat([shares.new_ones(1), shares]) / (1 + shares.sum())

    def describe(self) -> Description:
        others = self.weights().tolist()[1:]
        values = {f"weight_{i}": w for i, w in enumerate(others, 1)} if self.each else {"weight": others[0]}
        return Description(f"Weighted {self.orbit.describe().title}", {name: Quantity(w) for name, w in values.items()})


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
