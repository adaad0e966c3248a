"""Signals between their samples: linear or cubic interpolation, and four kinds of border.

The cubic one is that of Keys (Catmull-Rom). It has a continuous slope and is exact for parabolas, so it keeps the height of
peaks, which linear interpolation cuts. What lies outside the signal is ``zero``, its ``edge`` value, its mirror image
(``reflect``, about the last sample), or the signal again (``circular``). Positions on a sample return that sample exactly.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Border = Literal["zero", "edge", "reflect", "circular"]
Interpolation = Literal["linear", "cubic"]

_FARTHEST = 2.0**30  # positions beyond are moved here before they become whole numbers


def interpolate(
    x: Float[Tensor, "rows channels length"],
    position: Float[Tensor, "some samples points"],
    border: Border,
    interpolation: Interpolation,
) -> Float[Tensor, "rows samples channels points"]:
    """Each signal at its positions, in samples from the first; one row of positions serves for all signals."""
    rows, channels, length = x.shape
    below = position.detach().floor()
    part = position - below
    first = below.nan_to_num().clamp(-_FARTHEST, _FARTHEST).long()
    found: Tensor | float = 0.0
    for offset, weight in _weights(part, interpolation):
        index, inside = _within(first + offset, length, border)
        flat = index.flatten(1)[:, None].expand(rows, channels, -1)
        values = x.gather(2, flat).unflatten(2, index.shape[1:]).transpose(1, 2)
        weight = weight if inside is None else weight * inside
        found = found + weight[:, :, None] * values
    assert isinstance(found, Tensor)
    return found


def _weights(p: Tensor, interpolation: Interpolation) -> list[tuple[int, Tensor]]:
    """Which neighbours count, from the sample below, and by how much."""
    if interpolation == "linear":
        return [(0, 1 - p), (1, p)]
    q = 1 - p
    return [
        (-1, -0.5 * p * q**2),
        (0, q * (1 + p - 1.5 * p**2)),
        (1, p * (1 + q - 1.5 * q**2)),
        (2, -0.5 * p**2 * q),
    ]


def _within(
    index: Int[Tensor, "*shape"], length: int, border: Border
) -> tuple[Int[Tensor, "*shape"], Bool[Tensor, "*shape"] | None]:
    """Indices of samples that stand for these, and, where the border is zero, whether they lie inside."""
    if border == "circular":
        return index.remainder(length), None
    if border == "reflect":
        period = max(2 * (length - 1), 1)
        folded = index.remainder(period)
        return torch.minimum(folded, period - folded).clamp(max=length - 1), None
    nearest = index.clamp(0, length - 1)
    return nearest, (index == nearest if border == "zero" else None)
