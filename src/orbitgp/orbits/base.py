"""Orbits: what may happen to an input without changing the answer.

An orbit is the paper's augmentation density p(x_a | x), written as a deterministic map of base draws: ``x_a =
transform(x, u)`` with u uniform in the unit cube. The map is differentiable in the orbit's own parameters, so the
gradient of the marginal likelihood flows through the samples into them. That is the one hook::

    class Jitter(Orbit):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.width = torch.nn.Parameter(torch.tensor(0.1))

        def transform(self, x, u):  # (N, D), (N, S, 1) -> (N, S, D)
            return x[:, None] + self.width * (2 * u - 1)

``a * b`` lets a act first, then b. Parts that can merge do so (:meth:`Orbit.merge`); the others act one after the other
on the samples. A finite part inside an infinite composition is enumerated inside every group, so that it adds no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from math import inf, prod
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from orbitgp.orbits import sampling
from orbitgp.orbits.description import Description, Quantity, listed
from orbitgp.orbits.pickling import Portable
from orbitgp.orbits.ranges import Range
from orbitgp.orbits.sampling import BatchPositions, Draws, Elements, Inputs, Pairing, Samples, Transformed, base_draws


class Orbit(Portable):
    """p(x_a | x) as a differentiable map of base draws. Subclasses set ``num_draws`` and write ``transform``.

    >>> Rotation(30).sample(torch.zeros(5, 8, 8), num_samples=16).points.shape  # rows, groups, draws of a group
    torch.Size([5, 2, 8, 8, 8])
    """

    num_draws: int = 0  # or one for each range
    reach: ClassVar[tuple[str, ...]] = ()  # parameters that set how far the orbit goes; at zero it does nothing
    bounded: ClassVar[tuple[str, ...]] = ()  # names of parameters from 0 to 1, reflected at both ends, such as weights
    in_units_of_inputs: ClassVar[bool] = False  # whether parameters are, as the scale of a noise is

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        """S samples of the orbit of each row of x, one for each row of base draws u in (0, 1)^d."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(x, u).")

    def draws_for(self, features: torch.Size) -> int:
        """Base draws per sample for inputs of this shape. Override it where the number depends on the shape."""
        return self.num_draws or len(self.named_ranges())

    def check(self, features: torch.Size) -> None:
        """Raise ValueError, in one sentence, if inputs of this shape cannot be transformed."""

    def describe(self) -> Description:
        """The learned ranges in physical units; without any, the raw parameters by name, and reaches without sign."""
        found = {name: interval.quantity() for name, interval in self.named_ranges().items()}
        raw = {name: p.abs() if name in self.reach else p for name, p in self.named_parameters()}
        single = {name: p.item() if p.numel() == 1 else (p.min().item(), p.max().item()) for name, p in raw.items()}
        return Description(type(self).__name__, found or {name: Quantity(value) for name, value in single.items()})

    def named_ranges(self) -> dict[str, Range]:
        """The learned ranges. Each has the name of the argument that it is made from."""
        return {name.rpartition(".")[2]: part for name, part in self.named_modules() if isinstance(part, Range)}

    def saved_arguments(self) -> dict[str, Any]:
        """Arguments that build an orbit with the same attributes, and with parameters of the same shapes."""
        ranges = self.named_ranges()
        skewed = {name: part.skewed_ends() for name, part in ranges.items() if part.skew is not None}
        # A range without a skew may start as one that is not learned: the values of parameters are saved apart.
        parts = {name: part for name, part in self.named_children() if name not in ranges}
        known = {**vars(self), **parts, **skewed, **({"learn": bool(skewed)} if ranges else {})}
        return {name: known[name] for name in signature(type(self)).parameters if name in known}

    def __repr__(self) -> str:
        """As in ``Rotation(degrees=±30°)``."""
        described = self.describe()
        values = ", ".join(f"{name}={quantity}" for name, quantity in described.quantities.items())
        return f"{described.title}({values})"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    def reaches(self) -> list[nn.Parameter]:
        """Learned parameters that set how far this orbit and its parts go. Training tries several multiples of them."""
        return [getattr(part, name) for part, name in self._reaches()]

    def widest_reaches(self) -> list[float]:
        """For each reach, where the orbit contains everything, as all rotations do; infinity where it never does."""
        return [getattr(part, "widest", inf) for part, _ in self._reaches()]

    def _reaches(self) -> list[tuple[nn.Module, str]]:
        named = [(part, name) for part in self.modules() for name in getattr(part, "reach", ())]
        return [(part, name) for part, name in named if getattr(part, name).requires_grad]

    def simpler(self) -> list[list[nn.Parameter]]:
        """Simpler orbits that this contains, by the reaches that each keeps. Training starts from each of them, too."""
        return []

    def without_reach(self) -> Orbit:
        """What is left where all reaches are zero: training learns the kernel of that first."""
        return Identity()

    def sample(
        self,
        x: Inputs,
        num_samples: int | None,
        num_groups: int = 2,
        sampler: sampling.Policy = "qmc",
        generator: torch.Generator | None = None,
        among: BatchPositions | None = None,
    ) -> Samples:
        """Training samples: ``num_groups`` independent groups, fresh for every row (``among``: of a larger batch)."""
        pairing = Pairing.groups(num_groups)
        if num_samples is None or num_samples < num_groups or num_samples % num_groups:
            raise ValueError(f"num_samples must be a positive multiple of num_groups={num_groups}, got {num_samples}.")
        rows, total = among or (slice(None), len(x))
        shape = (total, num_groups, num_samples // num_groups, self.draws_for(x.shape[1:]))
        u = base_draws(sampler, *shape, generator=generator, dtype=x.dtype, device=x.device)[rows]
        xa = self.transform(x, u.flatten(1, 2))
        return Samples(xa.unflatten(1, (num_groups, -1)), pairing)

    def shared_samples(self, x: Inputs, num_samples: int | None, *seeds: int) -> Samples:
        """Prediction samples: the same draws for every row, taken as a finite orbit; ``num_samples`` per seed (0)."""
        if num_samples is None or num_samples < 1:
            raise ValueError(f"an infinite orbit needs a positive number of samples at prediction, got {num_samples}.")
        shape, generators = (1, 1, num_samples, self.draws_for(x.shape[1:])), _generators(seeds)
        u = torch.cat([base_draws("qmc", *shape, generator=each, dtype=x.dtype) for each in generators], 2).to(x.device)
        xa = self.transform(x, u[0].expand(len(x), -1, -1))
        return Samples(xa[:, None], Pairing.exact())

    def merge(self, other: Orbit) -> Orbit | None:
        """One orbit that is this one followed by ``other``, or None where the two do not merge.

        Kinds that have a cheaper form of their composition override this: :class:`FiniteOrbit`, image warps.
        """
        return None

    def __mul__(self, other: Orbit) -> Orbit:
        """``a * b``: a acts first, then b."""
        if not isinstance(other, Orbit):
            return NotImplemented
        whole = [part for one in (self, other) for part in (one.parts if isinstance(one, Composition) else [one])]
        parts: list[Orbit] = []
        for part in (part for part in whole if not isinstance(part, Identity)):
            merged = parts[-1].merge(part) if parts else None
            parts[-1:] = [*parts[-1:], part] if merged is None else [merged]
        return Composition(parts) if len(parts) > 1 else parts[0] if parts else Identity()


def _generators(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds or (0,)]


class FiniteOrbit(Orbit):
    """A set of P transformations, equally likely unless weighted. Subclasses set ``size``, write ``elements``."""

    size: int
    names: Sequence[str] = ()  # of what it acts on, for people
    product: ClassVar[Any]  # FiniteProduct, which is a finite orbit itself

    def elements(self, x: Inputs) -> Elements:
        """All elements of the orbit of each row of x."""
        raise NotImplementedError(f"{type(self).__name__} must define elements(x).")

    def weights(self) -> Float[Tensor, " size"] | None:
        """The probability of each element, or None where all are equal."""
        return None

    def select(self, x: Inputs, index: Int[Tensor, "rows samples"]) -> Float[Tensor, "rows samples *features"]:
        """The elements with these indices. Override it where computing all of them first is wasteful."""
        return self.elements(x)[torch.arange(x.shape[0], device=x.device)[:, None], index]

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        """All elements, for any u: a finite orbit is enumerated, not drawn."""
        return self.elements(x)

    def sample(
        self,
        x: Inputs,
        num_samples: int | None,
        num_groups: int = 2,
        sampler: sampling.Policy = "qmc",
        generator: torch.Generator | None = None,
        among: BatchPositions | None = None,
    ) -> Samples:
        """The whole orbit where ``num_samples`` is None or covers it, else that many elements without replacement."""
        if num_samples is None or num_samples >= self.size:
            return Samples(self.elements(x)[:, None], Pairing.exact())
        pairing = Pairing.without_replacement(num_samples, self.size)
        rows, total = among or (slice(None), len(x))
        keys = torch.rand(total, self.size, generator=generator, device=x.device)[rows]
        index = keys.topk(num_samples, dim=1).indices
        return Samples(self.select(x, index)[:, :, None], pairing)

    def shared_samples(self, x: Inputs, num_samples: int | None, *seeds: int) -> Samples:
        """The whole orbit where ``num_samples`` covers it, else a fixed subset that is the same for every row."""
        if num_samples is None or num_samples >= self.size:
            return Samples(self.elements(x)[:, None], Pairing.exact())
        if self.weights() is not None:
            raise ValueError(f"elements with weights are enumerated: leave out num_samples={num_samples}.")
        index = torch.cat([torch.randperm(self.size, generator=each)[:num_samples] for each in _generators(seeds)])
        index = index.to(x.device).expand(len(x), -1)
        return Samples(self.select(x, index)[:, None], Pairing.exact())

    def describe(self) -> Description:
        title = f"{type(self).__name__} of {listed(self.names)}" if self.names else type(self).__name__
        return Description(title, {"elements": Quantity(float(self.size))})

    def merge(self, other: Orbit) -> Orbit | None:
        return cast("Orbit", self.product([self, other])) if isinstance(other, FiniteOrbit) else None


class Identity(FiniteOrbit):
    """x_a = x: no invariance, the plain Gaussian process.

    >>> Identity().size
    1
    """

    size = 1

    def elements(self, x: Inputs) -> Elements:
        return x[:, None]

    def describe(self) -> Description:
        return Description("Identity")


class Parts(Orbit):
    """What orbits that are made of others share: all parts act, and their base draws are concatenated in that order."""

    parts: Sequence[Orbit]

    def __init__(self, parts: Sequence[Orbit]) -> None:
        super().__init__()
        same = type(self)  # parts of a part of the same kind are parts of this
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, same) else [part])]
        self.parts = cast("Sequence[Orbit]", nn.ModuleList(flat))

    def draws_for(self, features: torch.Size) -> int:
        return sum(part.draws_for(features) for part in self.parts)

    def check(self, features: torch.Size) -> None:
        for part in self.parts:
            part.check(features)

    def simpler(self) -> list[list[nn.Parameter]]:
        learned = [part for part in self.parts if part.reaches()]
        whole = [part.reaches() for part in learned] if len(learned) > 1 else []
        return [*whole, *(family for part in learned for family in part.simpler())]

    def pieces(self, u: Tensor, features: torch.Size) -> list[tuple[Any, Tensor]]:
        """Each part with its base draws."""
        return list(zip(self.parts, u.split([part.draws_for(features) for part in self.parts], dim=-1), strict=True))

    def describe(self) -> Description:
        return Description.join([part.describe() for part in self.parts])

    def saved_arguments(self) -> dict[str, Any]:
        return {"parts": list(self.parts)}


class Composition(Parts):
    """Orbits that act one after the other."""

    def __init__(self, parts: Sequence[Orbit]) -> None:
        super().__init__(parts)
        if any(isinstance(part, FiniteOrbit) and part.weights() is not None for part in self.parts):
            raise ValueError("weights can be composed with finite orbits alone: leave out Weighted, or the rest.")

    def without_reach(self) -> Orbit:
        return prod((part.without_reach() for part in self.parts), start=Identity())

    def transform(self, x: Inputs, u: Draws) -> Transformed:
        features = x.shape[1:]
        xa = x[:, None]  # (N, K, *features): K grows to S at the first infinite part, and by P at each finite part
        drawn = False
        for part, piece in self.pieces(u, features):
            rows, count = xa.shape[:2]
            if isinstance(part, FiniteOrbit):
                xa = part.elements(xa.flatten(0, 1)).reshape(rows, -1, *features)
            elif not drawn:
                drawn = True
                # The first infinite part: S draws for each of the elements so far, in the order (draw, element).
                each = piece[:, None].expand(-1, count, -1, -1).flatten(0, 1)
                samples = part.transform(xa.flatten(0, 1), each).reshape(rows, count, -1, *features)
                xa = samples.transpose(1, 2).reshape(rows, -1, *features)
            else:
                each = piece[:, :, None].expand(-1, -1, count // piece.shape[1], -1).reshape(rows * count, 1, -1)
                xa = part.transform(xa.flatten(0, 1), each).reshape(rows, -1, *features)
        return xa
