"""``a * b``: first a, then b.

Parts that know how to merge do so (image warps compose their points and interpolate once, finite orbits enumerate the
product); the others act one after the other on the samples. A finite part inside an infinite composition is enumerated
inside every group, so that it adds no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.orbits.base import Description, Orbit
from orbitgp.orbits.finite import FiniteOrbit, FiniteProduct, Identity


def compose(first: Orbit, second: Orbit) -> Orbit:
    """The composition of two orbits in its simplest form."""
    parts: list[Orbit] = []
    for part in (*_parts(first), *_parts(second)):
        if isinstance(part, Identity):
            continue
        merged = merge(parts[-1], part) if parts else None
        if merged is None:
            parts.append(part)
        else:
            parts[-1] = merged
    if not parts:
        return Identity()
    return parts[0] if len(parts) == 1 else Composition(parts)


def merge(first: Orbit, second: Orbit) -> Orbit | None:
    """One orbit that is both, if the two are of kinds that merge."""
    from orbitgp.orbits.warps import Warp, WarpProduct

    if isinstance(first, FiniteOrbit) and isinstance(second, FiniteOrbit):
        return FiniteProduct([first, second])
    if isinstance(first, Warp) and isinstance(second, Warp):
        return WarpProduct([first, second])
    return None


def _parts(orbit: Orbit) -> list[Orbit]:
    return list(orbit.parts) if isinstance(orbit, Composition) else [orbit]


class Composition(Orbit):
    """Orbits that act one after the other. Base draws are concatenated in the order of the parts."""

    def __init__(self, parts: list[Orbit]) -> None:
        super().__init__()
        self.parts: Sequence[Orbit] = cast("Sequence[Orbit]", nn.ModuleList(parts))

    def draws_for(self, features: torch.Size) -> int:
        return sum(part.draws_for(features) for part in self.parts)

    def check(self, features: torch.Size) -> None:
        for part in self.parts:
            part.check(features)

    def transform(
        self, x: Float[Tensor, "rows *features"], u: Float[Tensor, "rows samples dim"]
    ) -> Float[Tensor, "rows allsamples *features"]:
        features = x.shape[1:]
        pieces = torch.split(u, [part.draws_for(features) for part in self.parts], dim=-1)
        xa = x[:, None]  # (N, K, *features): K grows to S at the first infinite part, and by P at each finite part
        copies = 1  # finite elements per base draw, adjacent to each other
        drawn = False
        for part, piece in zip(self.parts, pieces, strict=True):
            rows, count = xa.shape[:2]
            if isinstance(part, FiniteOrbit):
                xa = part.elements(xa.flatten(0, 1)).reshape(rows, -1, *features)
                copies *= xa.shape[1] // count
            elif not drawn:
                drawn = True
                # The first infinite part: S draws for each of the elements so far, in the order (draw, element).
                each = piece[:, None].expand(-1, copies, -1, -1).flatten(0, 1)
                samples = part.transform(xa.flatten(0, 1), each).reshape(rows, copies, -1, *features)
                xa = samples.transpose(1, 2).reshape(rows, -1, *features)
            else:
                each = piece[:, :, None].expand(-1, -1, count // piece.shape[1], -1).reshape(rows * count, 1, -1)
                xa = part.transform(xa.flatten(0, 1), each).reshape(rows, -1, *features)
        return xa

    def describe(self) -> Description:
        return Description.join([part.describe() for part in self.parts])
