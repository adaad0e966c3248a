"""Base draws: where the randomness of an orbit comes from.

An orbit is a deterministic map of base draws u in (0, 1)^d. How those draws are made is a policy, independent of the orbit:

- ``iid``: every draw on its own, as in the paper.
- ``qmc``: within a group, one low-discrepancy point set (Hammersley-Sobol) moved by a random shift modulo one. The shift is
  drawn anew for every datum and every group, so that groups are independent of each other and every single draw is uniform:
  group means are unbiased, with far less variance than ``iid`` for smooth orbits of few dimensions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

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
        raise ValueError(f"draws must be one of {', '.join(POLICIES)}, got {policy!r}.")
    dtype = dtype or torch.get_default_dtype()
    if policy == "iid":
        u = torch.rand(rows, groups, points, dim, generator=generator, dtype=dtype, device=device)
    else:
        lattice = low_discrepancy(points, dim).to(device=device, dtype=dtype)
        shift = torch.rand(rows, groups, 1, dim, generator=generator, dtype=dtype, device=device)
        u = (lattice + shift).remainder_(1.0)
    # The open interval: an orbit may take the normal quantile of u, which is infinite at both ends.
    eps = torch.finfo(dtype).eps
    return u.clamp_(eps, 1.0 - eps)


@lru_cache(maxsize=64)
def low_discrepancy(points: int, dim: int) -> Float[Tensor, "points dim"]:
    """Hammersley-Sobol points: i/n in the first coordinate (evenly spaced for any n), Sobol' in the others."""
    u = torch.arange(points, dtype=torch.float64)[:, None] / points
    if dim <= 1:
        return u[:, :dim]
    if dim - 1 > _SOBOL_MAX_DIM:
        raise ValueError(f"qmc draws have at most {_SOBOL_MAX_DIM + 1} dimensions, this orbit needs {dim}: use draws='iid'.")
    # Skipping no points keeps the net structure; the shift moves the origin away from zero.
    sobol = torch.quasirandom.SobolEngine(dim - 1).draw(points, dtype=torch.float64)
    return torch.cat([u, sobol], dim=1)
