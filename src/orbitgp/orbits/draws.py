"""Base draws: where the randomness of an orbit comes from.

An orbit is a deterministic map of base draws u in (0, 1)^d. How those draws are made is a policy, independent of the orbit:

- ``iid``: every draw on its own, as in the paper.
- ``qmc``: within a group, one low-discrepancy point set (Hammersley-Sobol), moved by a random digital shift: the binary digits
  of every coordinate are flipped by one random number. That number is drawn anew for every datum and every group, so groups are
  independent of each other and every single draw is uniform: group means are unbiased, with far less variance than ``iid`` for
  smooth orbits of few dimensions, and no more for rough ones of many. A power of two is the best number of points.
- ``antithetic``: within a group, pairs u and 1 - u. Whatever is linear in the draws cancels; cheaper than ``qmc``, and weaker.
"""

from __future__ import annotations

from math import log2
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.orbits.constants import constant

Policy = Literal["iid", "qmc", "antithetic"]
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
        raise ValueError(f"draws must be one of {', '.join(POLICIES)}, got {policy!r}.")
    dtype = dtype or torch.get_default_dtype()
    eps = torch.finfo(dtype).eps

    def uniform(points: int, dim: int) -> Tensor:
        # The open interval: an orbit may take the normal quantile of u, which is infinite at both ends.
        u = torch.rand(rows, groups, points, dim, generator=generator, dtype=dtype, device=device)
        return u.clamp_(eps, 1.0 - eps)

    if policy == "iid":
        return uniform(points, dim)
    if policy == "antithetic":
        half = uniform((points + 1) // 2, dim)
        return torch.cat([half, 1 - half], dim=2)[:, :, :points]
    # The leading dimensions matter most, so those beyond Sobol's are left to chance.
    lead = min(dim, _SOBOL_MAX_DIM + 1)
    digits = round(-log2(eps))  # as many as u can hold next to the half that keeps it away from zero and one
    net = _integers(points, lead, digits, dtype=torch.int64 if digits > 30 else torch.int32, device=device)
    flips = torch.randint(2**digits, (rows, groups, 1, lead), generator=generator, dtype=net.dtype, device=device)
    moved = net ^ flips
    if points & (points - 1):  # i/n has no finite binary digits: there a shift modulo one keeps the points evenly spaced
        moved[..., :1] = (net[:, :1] + flips[..., :1]) & (2**digits - 1)
    u = moved.to(dtype).add_(0.5).mul_(eps)
    return u if lead == dim else torch.cat([u, uniform(points, dim - lead)], dim=-1)


@constant
def _integers(points: int, dim: int, digits: int) -> Float[Tensor, "points dim"]:
    """Low-discrepancy points as whole numbers of ``digits`` binary digits."""
    return low_discrepancy(points, dim) * 2**digits


@constant
def low_discrepancy(points: int, dim: int) -> Float[Tensor, "points dim"]:
    """Hammersley-Sobol points: i/n in the first coordinate (evenly spaced for any n), Sobol' in the others."""
    u = torch.arange(points, dtype=torch.float64)[:, None] / points
    if dim <= 1:
        return u[:, :dim]
    # Skipping no points keeps the net structure; the digital shift moves the origin away from zero.
    sobol = torch.quasirandom.SobolEngine(dim - 1).draw(points, dtype=torch.float64)
    return torch.cat([u, sobol], dim=1)
