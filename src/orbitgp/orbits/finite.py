"""Finite orbits: sets that can be enumerated.

The hook is ``elements(x)``: all P elements of the orbit of x. Small orbits are enumerated exactly; large ones are sampled
without replacement, with the weights of appendix B.1 that keep the estimate unbiased.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from orbitgp.orbits.base import Description, Orbit, Pairing, Quantity, Samples
from orbitgp.orbits.draws import Policy
from orbitgp.orbits.images import ImageOrbit


class FiniteOrbit(Orbit):
    """A set of P transformations, all equally likely. Subclasses set ``size`` and write ``elements``."""

    size: int

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        """All elements of the orbit of each row of x."""
        raise NotImplementedError(f"{type(self).__name__} must define elements(x).")

    def select(
        self, x: Float[Tensor, "rows *features"], index: Int[Tensor, "rows samples"]
    ) -> Float[Tensor, "rows samples *features"]:
        """The elements with these numbers; override where making all of them first is wasteful."""
        return self.elements(x)[torch.arange(len(x), device=x.device)[:, None], index]

    def transform(
        self, x: Float[Tensor, "rows *features"], u: Float[Tensor, "rows samples dim"]
    ) -> Float[Tensor, "rows allsamples *features"]:
        """All elements, whatever u: a finite orbit is enumerated, not drawn."""
        return self.elements(x)

    def sample(
        self,
        x: Float[Tensor, "rows *features"],
        num_samples: int | None,
        num_groups: int = 2,
        draws: Policy = "qmc",
        generator: torch.Generator | None = None,
    ) -> Samples:
        """The whole orbit where ``num_samples`` is None or covers it, else that many elements without replacement."""
        if num_samples is None or num_samples >= self.size:
            return Samples(self.elements(x)[:, None], Pairing.exact())
        pairing = Pairing.without_replacement(num_samples, self.size)
        keys = torch.rand(len(x), self.size, generator=generator, device=x.device)
        index = keys.topk(num_samples, dim=1).indices
        return Samples(self.select(x, index)[:, :, None], pairing)

    def fixed(self, x: Float[Tensor, "rows *features"], num_samples: int | None, seed: int = 0) -> Samples:
        """The whole orbit where ``num_samples`` covers it, else a fixed subset that is the same for every row."""
        if num_samples is None or num_samples >= self.size:
            return Samples(self.elements(x)[:, None], Pairing.exact())
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(seed))
        index = order[:num_samples].to(x.device).expand(len(x), -1)
        return Samples(self.select(x, index)[:, None], Pairing.exact())

    def describe(self) -> Description:
        return Description(type(self).__name__, {"elements": Quantity(float(self.size))})


class Identity(FiniteOrbit):
    """x_a = x: no invariance, the plain Gaussian process."""

    size = 1

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        return x[:, None]

    def describe(self) -> Description:
        return Description("Identity")


class FiniteProduct(FiniteOrbit):
    """Every element of the first part, followed by every element of the second, and so on."""

    def __init__(self, parts: Sequence[FiniteOrbit]) -> None:
        super().__init__()
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, FiniteProduct) else [part])]
        self.parts: Sequence[FiniteOrbit] = cast("Sequence[FiniteOrbit]", nn.ModuleList(flat))
        self.size = prod(part.size for part in flat)

    def check(self, features: torch.Size) -> None:
        for part in self.parts:
            part.check(features)

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        xa = x[:, None]
        for part in self.parts:
            xa = part.elements(xa.flatten(0, 1)).reshape(len(x), -1, *x.shape[1:])
        return xa


class Permutation(FiniteOrbit):
    """The input with its coordinates permuted: f(x) = f(x[p]) for every permutation p in the set.

    ``permutations`` is any set of coordinate permutations, (P, D). With ``close=True`` it is closed into the group that they
    generate, which makes the invariance strict; the identity is then among them. As given otherwise.
    """

    index: Tensor

    def __init__(self, permutations: Iterable[Sequence[int]], close: bool = False) -> None:
        super().__init__()
        rows = [tuple(int(i) for i in p) for p in permutations]
        if not rows:
            raise ValueError("Permutation needs at least one permutation of the coordinates.")
        dim = len(rows[0])
        if any(sorted(row) != list(range(dim)) for row in rows):
            raise ValueError(f"every row of permutations must hold each of 0..{dim - 1} once, got {rows}.")
        if close:
            rows = _closure(rows)
        self.register_buffer("index", torch.tensor(rows))
        self.size = len(rows)

    @classmethod
    def swap(cls, i: int, j: int, dim: int | None = None) -> Permutation:
        """The group of two that exchanges coordinates i and j of ``dim`` (by default just as many as i and j need)."""
        dim = max(i, j) + 1 if dim is None else dim
        if i == j or not (0 <= i < dim and 0 <= j < dim):
            raise ValueError(f"swap needs two different coordinates below {dim}, got {i} and {j}.")
        identity = list(range(dim))
        swapped = list(identity)
        swapped[i], swapped[j] = j, i
        return cls([identity, swapped])

    def check(self, features: torch.Size) -> None:
        if len(features) != 1 or features[0] != self.index.shape[1]:
            raise ValueError(
                f"Permutation acts on vectors of {self.index.shape[1]} coordinates, but inputs have shape {tuple(features)}."
            )

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        return x[:, self.index]

    def select(
        self, x: Float[Tensor, "rows *features"], index: Int[Tensor, "rows samples"]
    ) -> Float[Tensor, "rows samples *features"]:
        return x[:, None].expand(-1, index.shape[1], -1).gather(2, self.index[index])


def _closure(generators: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The group generated by permutations: products with generators until nothing new appears."""
    identity = tuple(range(len(generators[0])))
    group, frontier = {identity}, [identity]
    while frontier:
        products = {tuple(p[i] for i in g) for p in frontier for g in generators}
        frontier = sorted(products - group)
        group |= products
    return sorted(group)


class _ImageFinite(ImageOrbit, FiniteOrbit):
    """Finite orbits of images."""


class Flip(_ImageFinite):
    """The image and its mirror image: ``horizontal`` exchanges left and right, ``vertical`` top and bottom, or both."""

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        super().__init__()
        if not (horizontal or vertical):
            raise ValueError("Flip needs at least one of horizontal and vertical.")
        self.horizontal, self.vertical = horizontal, vertical
        self.size = 2 ** (horizontal + vertical)

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        images = [x]
        if self.horizontal:
            images += [image.flip(-1) for image in images]
        if self.vertical:
            images += [image.flip(-2) for image in images]
        return torch.stack(images, dim=1)


class Rotate90(_ImageFinite):
    """The four rotations of a square image by quarter turns."""

    size = 4

    def check(self, features: torch.Size) -> None:
        super().check(features)
        if features[-1] != features[-2]:
            raise ValueError(f"Rotate90 needs square images, got shape {tuple(features)}: use Flip or Rotation.")

    def elements(self, x: Float[Tensor, "rows *features"]) -> Float[Tensor, "rows size *features"]:
        return torch.stack([x.rot90(k, dims=(-2, -1)) for k in range(4)], dim=1)
