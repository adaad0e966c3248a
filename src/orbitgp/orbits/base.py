"""Orbits: what may happen to an input without changing the answer.

An orbit is the paper's augmentation density p(x_a | x), written as a deterministic map of base draws:
``x_a = transform(x, u)`` with u uniform in the unit cube. The map is differentiable in the orbit's own parameters, so the
gradient of the marginal likelihood flows through the samples into them. That is the one hook::

    class Jitter(Orbit):
        num_draws = 1

        def __init__(self):
            super().__init__()
            self.width = torch.nn.Parameter(torch.tensor(0.1))

        def transform(self, x, u):  # (N, D), (N, S, 1) -> (N, S, D)
            return x[:, None] + self.width * (2 * u - 1)

Everything else, drawing u, arranging samples in independent groups, composing with ``*``, is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.draws import Policy, base_draws
from orbitgp.orbits.pickling import Portable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = float | tuple[float, float]


@dataclass(frozen=True)
class Pairing:
    """How blocks of samples combine into an unbiased estimate of a double expectation.

    For blocks b = 1..B of samples with block averages r(b, b') of some pair function,
    the estimate is ``off * sum_{b != b'} r(b, b') + diag * sum_b r(b, b)``.
    """

    blocks: int
    off: float
    diag: float

    @property
    def two_groups(self) -> bool:
        """Whether only pairs across two blocks count."""
        return self.blocks == 2 and self.diag == 0.0

    @classmethod
    def groups(cls, groups: int) -> Pairing:
        """Independent groups (every sample its own group: the paper's estimator): pairs of different groups only."""
        if groups < 2:
            raise ValueError(
                f"an infinite orbit needs at least 2 independent groups of samples for an unbiased estimate, got {groups}: "
                "set num_groups and num_samples to 2 or more."
            )
        return cls(groups, off=1.0 / (groups * (groups - 1)), diag=0.0)

    @classmethod
    def without_replacement(cls, drawn: int, size: int) -> Pairing:
        """``drawn`` of ``size`` elements without replacement (appendix B.1, as a mean): each element is a block of its own."""
        if not 2 <= drawn < size:
            raise ValueError(f"sampling without replacement takes 2 to {size - 1} of {size} elements, got {drawn}.")
        off = (size - 1) / (size * drawn * (drawn - 1))
        return cls(drawn, off=off, diag=1.0 / (size * drawn))

    @classmethod
    def exact(cls) -> Pairing:
        """The samples are the whole orbit: one block, all pairs, the diagonal too."""
        return cls(1, off=0.0, diag=1.0)


class Samples(NamedTuple):
    """Orbit samples of a batch, in blocks, with the rule that makes products of block means unbiased."""

    points: Float[Tensor, "rows blocks size *features"]
    pairing: Pairing


@dataclass(frozen=True)
class Quantity:
    """One learned quantity in physical units: a number, or a (low, high) range."""

    value: Value
    unit: str = ""

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return " … ".join(self._number(end, "+") for end in self.value)
        return self._number(self.value)

    def _number(self, value: float, sign: str = "") -> str:
        if self.unit == "×":
            return f"×{value:.4g}"
        return f"{value:{sign}.4g}{self.unit if self.unit == '°' else ' ' + self.unit}".rstrip()


class Description(Mapping[str, Value]):
    """What an orbit has learned, by name, in physical units. A mapping to plain numbers that prints as a small table."""

    def __init__(self, title: str, quantities: Mapping[str, Quantity] | None = None) -> None:
        self.title = title
        self.quantities = dict(quantities or {})

    def __getitem__(self, name: str) -> Value:
        return self.quantities[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.quantities)

    def __len__(self) -> int:
        return len(self.quantities)

    def to_dict(self) -> dict[str, Value]:
        return dict(self)

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        lines = [f"  {name:<{width}}  {quantity}" for name, quantity in self.quantities.items()]
        return "\n".join([self.title, *lines])

    @classmethod
    def join(cls, parts: Sequence[Description]) -> Description:
        """Several descriptions as one; a name that occurs more than once carries its title, and then a number, in front."""
        counts = Counter(name for part in parts for name in part)
        titles = Counter(part.title for part in parts)
        seen: Counter[str] = Counter()
        joined: dict[str, Quantity] = {}
        for part in parts:
            seen[part.title] += 1
            label = part.title.lower() + (str(seen[part.title]) if titles[part.title] > 1 else "")
            for name, quantity in part.quantities.items():
                joined[f"{label}.{name}" if counts[name] > 1 else name] = quantity
        return cls(" * ".join(part.title for part in parts), joined)


class Orbit(Portable):
    """p(x_a | x) as a differentiable map of base draws. Subclasses set ``num_draws`` and write ``transform``."""

    num_draws: int = 0
    reach: ClassVar[tuple[str, ...]] = ()  # names of parameters that say how far the orbit goes: at zero it does nothing

    def transform(
        self, x: Float[Tensor, "rows *features"], u: Float[Tensor, "rows samples dim"]
    ) -> Float[Tensor, "rows allsamples *features"]:
        """S samples of the orbit of each row of x, one for each row of base draws u in (0, 1)^d."""
        raise NotImplementedError(f"{type(self).__name__} must define transform(x, u).")

    def draws_for(self, features: torch.Size) -> int:
        """Base draws per sample for inputs of this shape; only orbits whose number depends on it override this."""
        return self.num_draws

    def check(self, features: torch.Size) -> None:
        """Raise ValueError, in one sentence, if inputs of this shape cannot be transformed."""

    def describe(self) -> Description:
        """The learned ranges in physical units; by default the raw parameters by name."""
        quantities = {
            name: Quantity(p.item()) if p.numel() == 1 else Quantity((p.min().item(), p.max().item()))
            for name, p in self.named_parameters()
        }
        return Description(type(self).__name__, quantities)

    def reaches(self) -> list[nn.Parameter]:
        """The learned parameters that say how far this orbit goes, of all its parts; training tries several multiples."""
        named = [getattr(module, name) for module in self.modules() for name in getattr(module, "reach", ())]
        return [parameter for parameter in named if parameter.requires_grad]

    def freeze(self) -> Orbit:
        """Learn nothing of this orbit; returns itself."""
        self.requires_grad_(False)
        return self

    def sample(
        self,
        x: Float[Tensor, "rows *features"],
        num_samples: int | None,
        num_groups: int = 2,
        draws: Policy = "qmc",
        generator: torch.Generator | None = None,
    ) -> Samples:
        """Samples for training: ``num_groups`` independent groups, fresh for every row."""
        pairing = Pairing.groups(num_groups)
        if num_samples is None or num_samples < num_groups or num_samples % num_groups:
            raise ValueError(f"num_samples must be a positive multiple of num_groups={num_groups}, got {num_samples}.")
        shape = (len(x), num_groups, num_samples // num_groups, self.draws_for(x.shape[1:]))
        u = base_draws(draws, *shape, generator=generator, dtype=x.dtype, device=x.device)
        xa = self.transform(x, u.flatten(1, 2))
        return Samples(xa.reshape(len(x), num_groups, -1, *x.shape[1:]), pairing)

    def fixed(self, x: Float[Tensor, "rows *features"], num_samples: int | None, seed: int = 0) -> Samples:
        """Samples for prediction: the same draws for every row, taken as a finite orbit of ``num_samples`` elements."""
        if num_samples is None or num_samples < 1:
            raise ValueError(f"an infinite orbit needs a positive number of samples at prediction, got {num_samples}.")
        generator = torch.Generator().manual_seed(seed)
        dim = self.draws_for(x.shape[1:])
        u = base_draws("qmc", 1, 1, num_samples, dim, generator=generator, dtype=x.dtype).to(x.device)
        xa = self.transform(x, u[0].expand(len(x), -1, -1))
        return Samples(xa[:, None], Pairing.exact())

    def show(
        self,
        x: Any,
        num_samples: int = 24,
        seed: int = 0,
        theme: Literal["light", "dark"] = "light",
        title: str | None = None,
    ) -> Figure:
        """A picture of samples around one input (or a list of them); see ``orbitgp.report.orbits`` for this and others."""
        from orbitgp.report.orbits import samples  # where matplotlib is: an orbit works without it

        return samples(self, x, num_samples, seed, theme, title)

    def __mul__(self, other: Orbit) -> Orbit:
        """``a * b``: a acts first, then b."""
        if not isinstance(other, Orbit):
            return NotImplemented
        from orbitgp.orbits.composition import compose

        return compose(self, other)
