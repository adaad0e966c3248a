"""Base draws: where the randomness of an orbit comes from.

An orbit is a deterministic map of base draws u in (0, 1)^d. How those draws are made is a policy, the ``sampler``,
which is independent of the orbit:

- ``iid``: every draw on its own, as in the paper.
- ``qmc``: within a group, one low-discrepancy point set (Hammersley-Sobol), moved by a random digital shift: the binary
  digits of every coordinate are flipped by a random number of each datum and each group. So groups are independent,
  every draw is uniform, and group means are unbiased. Their variance is far below that of ``iid`` for smooth orbits of
  few dimensions, and no larger for rough orbits of many. A power of two is the best number of points.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.machine import constant

# What an orbit maps, from which draws, to what: x, u, x_a of ``Orbit.transform``, and all elements of a finite orbit.
Inputs = Float[Tensor, "rows *features"]
Draws = Float[Tensor, "rows samples dim"]
Transformed = Float[Tensor, "rows allsamples *features"]
Elements = Float[Tensor, "rows size *features"]

Policy = Literal["iid", "qmc"]
POLICIES: tuple[str, ...] = get_args(Policy)
_SOBOL_MAX_DIM = torch.quasirandom.SobolEngine.MAXDIM


def base_draws(
    policy: Policy,
    rows: int,
    groups: int,
    points: int,
    dim: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Float[Tensor, "rows groups points dim"]:
    """Draws in the open unit cube: ``groups`` independent sets of ``points`` draws for each of ``rows`` data."""
    if policy not in POLICIES:
        raise ValueError(f"sampler must be one of {', '.join(POLICIES)}, got {policy!r}.")
    dtype = dtype or torch.get_default_dtype()
    eps = torch.finfo(dtype).eps

    def uniform(points: int, dim: int) -> Tensor:
        # The open interval: an orbit may take the normal quantile of u, which is infinite at both ends.
        u = torch.rand(rows, groups, points, dim, generator=generator, dtype=dtype, device=device)
        return u.clamp_(eps, 1.0 - eps)

    if policy == "iid":
        return uniform(points, dim)
    # The leading dimensions matter most. Those beyond Sobol's limit get independent draws.
    lead = min(dim, _SOBOL_MAX_DIM + 1)
    digits = round(-log2(eps))  # of u, less the one that holds the half below, which keeps u away from zero and one
    net = _net(points, lead, digits, dtype=torch.int64 if digits > 30 else torch.int32, device=device)
    flips = torch.randint(2**digits, (rows, groups, 1, lead), generator=generator, dtype=net.dtype, device=device)
    moved = net ^ flips
    if points & (points - 1):  # i/n has no finite binary expansion: a shift modulo one keeps these points evenly spaced
        moved[..., :1] = (net[:, :1] + flips[..., :1]) & (2**digits - 1)
    u = moved.to(dtype).add_(0.5).mul_(eps)
    return u if lead == dim else torch.cat([u, uniform(points, dim - lead)], dim=-1)


@constant
def _net(points: int, dim: int, digits: int) -> Float[Tensor, "points dim"]:
    """Hammersley-Sobol points: i/n in the first coordinate (evenly spaced for any n), Sobol' in the others.

    They are whole numbers of ``digits`` binary digits. Skipping no points keeps the net structure; the digital shift
    moves the origin away from zero.
    """
    u = (torch.arange(points, dtype=torch.float64)[:, None] / points)[:, :dim]
    sobol = [torch.quasirandom.SobolEngine(dim - 1).draw(points, dtype=torch.float64)] if dim > 1 else []
    return torch.cat([u, *sobol], dim=1) * 2**digits


@dataclass(frozen=True)
class Pairing:
    """How sample blocks make an unbiased estimate of a double expectation, from block averages r(b, b') of a function:

    ``off * sum_{b != b'} r(b, b') + diag * sum_b r(b, b)``.
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
                "an infinite orbit needs at least 2 independent groups of samples for an unbiased estimate, got "
                f"{groups}: set num_groups and num_samples to 2 or more."
            )
        return cls(groups, off=1.0 / (groups * (groups - 1)), diag=0.0)

    @classmethod
    def without_replacement(cls, drawn: int, size: int) -> Pairing:
        """``drawn`` of ``size`` elements without replacement (appendix B.1, as a mean): each is its own block."""
        if not 2 <= drawn < size:
            raise ValueError(f"sampling without replacement takes 2 to {size - 1} of {size} elements, got {drawn}.")
        return cls(drawn, off=(size - 1) / (size * drawn * (drawn - 1)), diag=1.0 / (size * drawn))

    @classmethod
    def exact(cls) -> Pairing:
        """The samples are the whole orbit: one block, all pairs, the diagonal too."""
        return cls(1, off=0.0, diag=1.0)


class BatchPositions(NamedTuple):
    """Rows of a larger batch: where they stand in it, and how many it has. Their draws are those of the whole batch."""

    positions: Int[Tensor, " rows"]
    total: int


class Samples(NamedTuple):
    """Orbit samples of a batch, in blocks, with the rule that makes products of block means unbiased."""

    points: Float[Tensor, "rows blocks size *features"]
    pairing: Pairing


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
    return _pair_weights(blocks, size, pairing, dtype=xa.dtype, device=xa.device)


@constant
def _pair_weights(blocks: int, size: int, pairing: Pairing) -> Float[Tensor, "left right"]:
    if pairing.two_groups:
        return torch.full((size, size), 2 * pairing.off / size**2, dtype=torch.float64)
    between = torch.full((blocks, blocks), pairing.off, dtype=torch.float64).fill_diagonal_(pairing.diag)
    return (between / size**2).repeat_interleave(size, 0).repeat_interleave(size, 1)
