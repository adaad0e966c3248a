"""Finite orbits: exchanged coordinates and channels, changed signs, mirror images, quarter turns, signals backwards.

Most are groups. Exact inference and :class:`~orbitgp.InvariantKernel` then need a single sum over the elements instead
of a double one, wherever the kernel allows that (:mod:`orbitgp.kernels.orbit_average`). From a group that is too large
to be enumerated, elements are drawn uniformly (:class:`Shuffle`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations as orders
from math import factorial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.orbits.base import FiniteOrbit, Orbit
from orbitgp.orbits.description import Description, listed
from orbitgp.orbits.images.warps import ImageOrbit
from orbitgp.orbits.sampling import Draws, Elements, Inputs, Transformed
from orbitgp.orbits.signals.warps import SignalOrbit

Permutations = Iterable[Sequence[int]]
_MAX_GROUP = 100_000  # elements: an orbit of more cannot be averaged over in any time
_MAX_ENUMERATED = 5_040  # orders of seven things; those of more are drawn


class Permutation(FiniteOrbit):
    """The input with its coordinates permuted: f(x) is the mean of g(x[p]) over the permutations p in the set.

        >>> Permutation.swap(0, 2).elements(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
        [[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]]

    Args:
        permutations: any set of permutations of D coordinates, (P, D). If it is a group, f(x) = f(x[p]).
        close: whether to close the set into the group that it generates. The identity is then among the permutations.
        names: what the coordinates are called that are exchanged, for people.
        any_length: whether vectors may have more than D coordinates; those beyond the first D then stay where they are.
    """

    index: Tensor

    def __init__(
        self, permutations: Permutations, close: bool = False, any_length: bool = False, names: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.any_length, self.names = any_length, tuple(names)
        rows = [tuple(int(i) for i in p) for p in permutations]
        if not rows:
            raise ValueError(f"{type(self).__name__} needs at least one permutation of the coordinates.")
        dim = len(rows[0])
        if any(sorted(row) != list(range(dim)) for row in rows):
            raise ValueError(f"every row of permutations must hold each of 0..{dim - 1} once, got {rows}.")
        self.register_buffer("index", torch.tensor(_closure(rows) if close else rows))
        self.size = len(self.index)

    @classmethod
    def swap(cls, i: int, j: int, dim: int | None = None, names: Sequence[str] = ()) -> Permutation:
        """The group of two that exchanges coordinates i and j of vectors: of any length, or of ``dim`` coordinates."""
        count = max(i, j) + 1 if dim is None else dim
        if i == j or not (0 <= i < count and 0 <= j < count):
            raise ValueError(f"swap needs two different coordinates, from 0 to {count - 1}, got {i} and {j}.")
        swapped = [{i: j, j: i}.get(k, k) for k in range(count)]
        return cls([range(count), swapped], any_length=dim is None, names=names)

    @classmethod
    def all(cls, *coordinates: int, names: Sequence[str] = ()) -> Orbit:
        """These coordinates in every order, or for a number n the first n. More than seven are drawn (``Shuffle``)."""
        return cls._exchanging([[i] for i in _several("Permutation.all", coordinates)], names)

    @classmethod
    def cyclic(cls, *coordinates: int, names: Sequence[str] = ()) -> Permutation:
        """These coordinates moved round in a circle, or the first n if n is a single number: a group of n elements."""
        places = _several("Permutation.cyclic", coordinates)
        return cls(_closure([_moved(places, [*places[1:], places[0]])]), any_length=True, names=names)

    @classmethod
    def dihedral(cls, *coordinates: int, names: Sequence[str] = ()) -> Permutation:
        """The same, and backwards: the symmetries of a polygon whose corners are these coordinates, 2 n of them."""
        places = _several("Permutation.dihedral", coordinates)
        generators = [_moved(places, [*places[1:], places[0]]), _moved(places, places[::-1])]
        return cls(_closure(generators), any_length=True, names=names)

    @classmethod
    def blocks(cls, items: int, size: int) -> Orbit:
        """Blocks of ``size`` coordinates, one after the other, in every order: points (x, y) have size two."""
        if items < 2 or size < 1:
            raise ValueError(f"blocks needs at least 2 items of at least 1 coordinate, got {items} of {size}.")
        return cls._exchanging([list(range(i * size, (i + 1) * size)) for i in range(items)])

    @classmethod
    def _exchanging(cls, items: list[list[int]], names: Sequence[str] = ()) -> Orbit:
        """Items, each with its coordinates, in every order: enumerated, or drawn where they are many."""
        if factorial(len(items)) > _MAX_ENUMERATED:
            return Shuffle(items, names)
        places = [i for item in items for i in item]
        rows = [_moved(places, [i for item in order for i in item]) for order in orders(items)]
        return cls(rows, any_length=True, names=names)

    def check(self, features: torch.Size) -> None:
        _check_vectors(self, features, self.index.shape[1], self.any_length)

    @property
    def moved(self) -> list[int]:
        """The coordinates that do not always stay where they are."""
        return (self.index != torch.arange(self.index.shape[1]).to(self.index)).any(0).nonzero()[:, 0].tolist()

    def elements(self, x: Inputs) -> Elements:
        return x[:, self._index_for(x)]

    def select(self, x: Inputs, index: Int[Tensor, "rows samples"]) -> Float[Tensor, "rows samples *features"]:
        return x[torch.arange(x.shape[0], device=x.device)[:, None, None], self._index_for(x)[index]]

    def _index_for(self, x: Inputs) -> Int[Tensor, "size dim"]:
        """The permutations of all coordinates of x, where those beyond the first D stay where they are."""
        self.check(x.shape[1:])
        rest = torch.arange(self.index.shape[1], x.shape[1], device=self.index.device)
        return torch.cat([self.index, rest.expand(self.size, -1)], 1)

    def saved_arguments(self) -> dict[str, Any]:
        return {**super().saved_arguments(), "permutations": self.index.tolist()}


def _check_vectors(orbit: Orbit, features: torch.Size, count: int, or_more: bool = True) -> None:
    """Refuse inputs that are no vectors of this many coordinates."""
    if len(features) != 1 or features[0] < count or (features[0] > count and not or_more):
        needed = f"{type(orbit).__name__} acts on vectors of {'at least ' if or_more else ''}{count} coordinates"
        raise ValueError(f"{needed}, but inputs have shape {tuple(features)}.")


def _several(name: str, coordinates: Sequence[int]) -> list[int]:
    """Coordinates as given, or the first n."""
    places = list(range(coordinates[0])) if len(coordinates) == 1 else [int(i) for i in coordinates]
    if len(places) < 2 or len(set(places)) < len(places) or min(places) < 0:
        needed = f"{name} needs a number from 2 on, or different coordinates, counted from 0"
        raise ValueError(f"{needed}, got {list(coordinates)}.")
    return places


def _moved(places: Sequence[int], sources: Sequence[int]) -> tuple[int, ...]:
    """The permutation that fills these places from those, and leaves all others alone."""
    source = dict(zip(places, sources, strict=True))
    return tuple(source.get(i, i) for i in range(max(places) + 1))


def _closure(generators: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The group generated by permutations: products with generators until nothing new appears."""
    identity = tuple(range(len(generators[0])))
    group, frontier = {identity}, [identity]
    while frontier:
        products = {tuple(p[i] for i in g) for p in frontier for g in generators}
        frontier = sorted(products - group)
        group |= products
        if len(group) > _MAX_GROUP:
            raise ValueError(f"these permutations generate a group of more than {_MAX_GROUP:,} elements: give fewer.")
    return sorted(group)


class Shuffle(Orbit):
    """Items in a random order, each of the n! as likely as any other: the order of n uniform base draws.

    Nothing is enumerated, so n may be large. Draws are unbiased, and predictions are insensitive to the order as far as
    draws allow. ``Permutation.all`` and ``Permutation.blocks`` give this orbit for more than seven items.

        >>> Shuffle([[0], [1], [2]]).sample(torch.tensor([[1.0, 2.0, 3.0]]), num_samples=8).points.shape
        torch.Size([1, 2, 4, 3])

    Args:
        items: the coordinates of each item, equally many.
        names: what the items are called, for people.
    """

    def __init__(self, items: Sequence[Sequence[int]], names: Sequence[str] = ()) -> None:
        super().__init__()
        self.items, self.names = [[int(i) for i in item] for item in items], tuple(names)
        places = [i for item in self.items for i in item]
        if len({len(item) for item in self.items}) != 1 or len(set(places)) < len(places) or min(places, default=0) < 0:
            raise ValueError(f"Shuffle needs items of equally many coordinates, all different, got {self.items}.")
        self.num_draws = len(self.items)

    @property
    def moved(self) -> list[int]:
        """The coordinates that do not always stay where they are."""
        return sorted(i for item in self.items for i in item)

    def check(self, features: torch.Size) -> None:
        _check_vectors(self, features, max(map(max, self.items)) + 1)

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        self.check(x.shape[1:])
        items = torch.tensor(self.items, device=x.device)
        sources = torch.arange(x.shape[1], device=x.device).repeat(*u.shape[:2], 1)
        sources[..., items.flatten()] = items[u.argsort(-1)].flatten(2)
        return x[:, None].expand(-1, u.shape[1], -1).gather(2, sources)

    def describe(self) -> Description:
        return Description(f"Shuffle of {listed(self.names) or f'{len(self.items)} items'}")


class ChannelPermutation(Permutation, SignalOrbit):
    """The signal with its channels permuted; arguments as for :class:`orbitgp.orbits.Permutation`, of channels.

    >>> ChannelPermutation.swap(0, 1).elements(torch.tensor([[[1.0], [2.0]]])).tolist()
    [[[[1.0], [2.0]], [[2.0], [1.0]]]]
    """

    def check(self, features: torch.Size) -> None:
        channels, shape = self.index.shape[1], tuple(features)
        if len(shape) != 2 or shape[0] != channels:
            raise ValueError(f"ChannelPermutation acts on signals ({channels}, T), but the inputs have shape {shape}.")


class SignChange(FiniteOrbit):
    """The vector, and the vector with other signs of these coordinates, all at once; ``names`` are theirs, for people.

    ``SignChange(0) * SignChange(1)`` changes each sign on its own.

        >>> SignChange(0).elements(torch.tensor([[1.0, 2.0]])).tolist()
        [[[1.0, 2.0], [-1.0, 2.0]]]
    """

    size = 2

    def __init__(self, *coordinates: int, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.coordinates, self.names = sorted({int(i) for i in coordinates}), tuple(names)
        if not self.coordinates or self.coordinates[0] < 0:
            raise ValueError(f"SignChange needs coordinates, counted from 0, got {self.coordinates}.")

    def check(self, features: torch.Size) -> None:
        _check_vectors(self, features, self.coordinates[-1] + 1)

    def elements(self, x: Inputs) -> Elements:
        self.check(x.shape[1:])
        signs = torch.ones(2, x.shape[1], dtype=x.dtype, device=x.device)
        signs[1, self.coordinates] = -1
        return x[:, None] * signs

    def saved_arguments(self) -> dict[str, Any]:
        return {"*": self.coordinates, "names": self.names}


class Reversal(FiniteOrbit, SignalOrbit):
    """The signal, and the signal backwards in time.

    >>> Reversal().elements(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [[[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]]
    """

    size = 2

    def elements(self, x: Inputs) -> Elements:
        return torch.stack([x, x.flip(-1)], dim=1)


class Flip(FiniteOrbit, ImageOrbit):
    """The image and its mirror image: ``horizontal`` exchanges left and right, ``vertical`` top and bottom, or both.

    >>> Flip().elements(torch.tensor([[[1.0, 2.0]]])).tolist()
    [[[[1.0, 2.0]], [[2.0, 1.0]]]]
    """

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        super().__init__()
        if not (horizontal or vertical):
            raise ValueError("Flip needs at least one of horizontal and vertical.")
        self.horizontal, self.vertical = horizontal, vertical
        self.size = 2 ** (bool(horizontal) + bool(vertical))

    def elements(self, x: Inputs) -> Elements:
        images = [x, x.flip(-1)] if self.horizontal else [x]
        return torch.stack([*images, *(image.flip(-2) for image in images if self.vertical)], dim=1)


class Rotate90(FiniteOrbit, ImageOrbit):
    """The four rotations of a square image by quarter turns.

    >>> Rotate90().elements(torch.zeros(1, 8, 8)).shape
    torch.Size([1, 4, 8, 8])
    """

    size = 4

    def check(self, features: torch.Size) -> None:
        super().check(features)
        if features[-1] != features[-2]:
            raise ValueError(f"Rotate90 needs square images, got shape {tuple(features)}: use Flip or Rotation.")

    def elements(self, x: Inputs) -> Elements:
        return torch.stack([x.rot90(k, dims=(-2, -1)) for k in range(4)], dim=1)
