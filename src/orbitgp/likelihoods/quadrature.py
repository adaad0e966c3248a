"""Averages over a normal distribution with fixed nodes: deterministic, and the same for every row.

In one dimension the nodes are evenly spaced, with normal weights. This is the trapezoid rule, which converges exponentially for
smooth integrands that decay on both sides. For a sigmoid under a wide normal it is better than Gauss-Hermite, whose outer nodes
carry no weight: at standard deviation 10 the mean of a sigmoid is off by 2e-7 with 128 even nodes, and by 8e-4 with 100
Gauss-Hermite nodes. In many dimensions the nodes are a scrambled Sobol' set with a fixed seed. With 1024 points, class
probabilities are off by a few 1e-4. Plain Monte Carlo would be off by 5e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

_EVEN_NODES, _EVEN_REACH = 201, 8.5  # nodes between -8.5 and 8.5 standard deviations
_SOBOL_POINTS = 1024
_MAX_ELEMENTS = 2**22  # of one array of nodes and rows


@lru_cache(maxsize=16)
def normal_nodes(dim: int) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " nodes"]]:
    """Nodes and weights for an average over N(0, I) in ``dim`` dimensions."""
    if dim == 1:
        z = torch.linspace(-_EVEN_REACH, _EVEN_REACH, _EVEN_NODES, dtype=torch.float64)
        return z[:, None], torch.softmax(-0.5 * z.square(), 0)
    sobol = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0).draw(_SOBOL_POINTS, dtype=torch.float64)
    # Scrambled points may lie on the edge of the cube, where the normal quantile is infinite.
    z = torch.special.ndtri(sobol.clamp(1e-10, 1 - 1e-10))
    return z, torch.full((_SOBOL_POINTS,), 1.0 / _SOBOL_POINTS, dtype=torch.float64)


def normal_average(
    function: Callable[[Float[Tensor, "nodes rows latents"]], Float[Tensor, "nodes rows *values"]],
    mean: Float[Tensor, "rows latents"],
    variance: Float[Tensor, "rows latents"],
) -> Float[Tensor, "rows *values"]:
    """E function(f) for f ~ N(mean, diag variance) in each row.

    ``function`` is called with all nodes of a block of rows. Small blocks bound the memory.
    """
    z, weights = normal_nodes(mean.shape[1])
    z, weights = z.to(mean), weights.to(mean)
    std = variance.clamp_min(0.0).sqrt()
    step = max(1, _MAX_ELEMENTS // z.numel())
    blocks = zip(mean.split(step), std.split(step), strict=True)
    return torch.cat([torch.einsum("q,q...->...", weights, function(m + s * z[:, None])) for m, s in blocks])
