"""Where the inducing points start.

Inducing variables are values of g, and g lives on *transformed* inputs. So the initial points are orbit samples of the data,
one for each datum, not the data themselves. There are three ways to choose among them.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.rows import Rows, fetch
from orbitgp.kernels.dispatch import covariance
from orbitgp.orbits import Orbit, Pairing
from orbitgp.orbits.sampling import base_draws

Method = Literal["random", "kmeans", "greedy"]


@torch.no_grad()
def initial_inducing(
    x: Float[Tensor, "rows *features"] | Rows,
    orbit: Orbit,
    kernel: Kernel,
    size: int,
    method: Method = "random",
    generator: torch.Generator | None = None,
) -> Float[Tensor, "inducing *features"]:
    """``size`` inducing points from orbit samples of x.

    - ``random``: orbit samples of random data, each datum used before any is used twice.
    - ``kmeans``: centres of orbit samples, started from the random ones.
    - ``greedy``: one after the other where the prior variance of g, given those chosen, is largest (pivoted Cholesky).
    """
    if method not in get_args(Method):
        raise ValueError(f"inducing points start from one of {', '.join(get_args(Method))}, got {method!r}.")
    pool = size if method == "random" else max(4 * size, min(len(x), 16 * size))
    candidates = _orbit_samples(x, orbit, pool, generator)
    if method == "kmeans":
        return _kmeans(candidates, size)
    if method == "greedy":
        return candidates[_pivots(candidates.flatten(1).double(), kernel, size)]
    return candidates


def _orbit_samples(x: Tensor | Rows, orbit: Orbit, count: int, generator: torch.Generator | None) -> Tensor:
    rounds = -(-count // len(x))
    device = x.device if generator is None else generator.device
    order = torch.cat([torch.randperm(len(x), generator=generator, device=device) for _ in range(rounds)])[:count]
    order = order.to(x.device)
    chosen = fetch(x, order)
    u = base_draws("iid", count, 1, 1, orbit.draws_for(x.shape[1:]), generator=generator, dtype=x.dtype, device=device)
    samples = orbit.transform(chosen, u[:, 0].to(x.device))
    # A finite orbit gives all its elements. Take one of them for each point, and the next one in each round, so that a datum
    # with as many points as its orbit has elements gets every element once.
    size = samples.shape[1]
    first = torch.randint(size, (len(x),), generator=generator, device=device).to(x.device)
    each = torch.arange(count, device=x.device)
    return samples[each, (first[order] + each // len(x)) % size].contiguous()


def _kmeans(points: Tensor, size: int, rounds: int = 10) -> Tensor:
    flat = points.flatten(1)
    centres = flat[:size].clone()
    for _ in range(rounds):
        nearest = torch.cdist(flat, centres).argmin(1)
        counts = torch.bincount(nearest, minlength=size)
        sums = torch.zeros_like(centres).index_add_(0, nearest, flat)
        centres = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1)[:, None], centres)
    return centres.reshape(size, *points.shape[1:])


def _pivots(points: Tensor, kernel: Kernel, size: int) -> Tensor:
    """Pivoted Cholesky of k_g on the candidates: each pivot is the candidate with the most variance left."""
    k = covariance(kernel)
    _, variance = k.expectations(points[:, None, None], points[:1], Pairing.exact())  # k_g(x, x) of each candidate
    rows = points.new_zeros(size, len(points))
    pivots = torch.zeros(size, dtype=torch.long, device=points.device)
    for i in range(size):
        pivot = variance.argmax()
        pivots[i] = pivot
        column = k.cross(points[pivot][None, None], points[:, None])[0]
        row = (column - rows[:i, pivot] @ rows[:i]) / variance[pivot].clamp_min(1e-12).sqrt()
        rows[i] = row
        variance = (variance - row.square()).clamp_min(0.0)
        variance[pivot] = -1.0
    return pivots
