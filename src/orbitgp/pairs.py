"""Which pairs of a datum's own samples the paired mean of k_g takes, and with what weight (:class:`orbitgp.orbits.Pairing`)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits import Pairing

Blocks = Float[Tensor, "rows blocks size dim"]


def pair_sides(xa: Blocks, pairing: Pairing) -> tuple[Tensor, Tensor]:
    """Left and right samples (N, a, D) and (N, b, D) of the pairs that count; one and the same tensor where all do."""
    if pairing.two_groups:
        # Only pairs across the two groups count, and k is symmetric: half the pairs.
        return xa[:, 0], xa[:, 1]
    flat = xa.flatten(1, 2)
    return flat, flat


def pair_weights(xa: Blocks, pairing: Pairing) -> Float[Tensor, "left right"]:
    """The weight of each pair of samples; they sum to one."""
    _, blocks, size, _ = xa.shape
    if pairing.two_groups:
        return xa.new_full((size, size), 2 * pairing.off / size**2)
    between = torch.full((blocks, blocks), pairing.off, dtype=torch.float64, device=xa.device)
    between.fill_diagonal_(pairing.diag)
    weights = (between / size**2).repeat_interleave(size, 0).repeat_interleave(size, 1)
    return weights.to(xa)
