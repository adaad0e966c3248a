"""K_f between data whose orbits are finite, block by block.

    K_f(n, m) = mean over a, b of k_g(x_na, x_mb)

There are (N S)^2 values of k_g, or N^2 S where a single sum is enough (:mod:`orbitgp.kernels.orbit_average`), and N^2
of K_f. So blocks of k_g are averaged at once. For the gradient they are kept where data are few, which saves a product
of matrices, and else computed again. Kuu of inducing variables that average g is that of other points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orbitgp.kernels.covariance import Centre, Covariance, Cross, OthersSeen, Seen
from orbitgp.machine import chunk_elements, in_smaller_chunks
from orbitgp.orbits.sampling import Pairing

_LEAST_BLOCK = {False: 2**21, True: 2**26}  # values of k_g; smaller blocks take more than they save above the diagonal
_KEPT_CHUNKS = 5  # intermediates of the largest size that may be kept for the gradient


@in_smaller_chunks
def gram(covariance: Covariance, seen: Seen, centre: Centre | None = None) -> Float[Tensor, "rows rows"]:
    """K_f of all data, in the dtype of the samples. The kernel is one of vectors that g sees."""
    rows, samples, dim = seen.shape
    pairs = covariance.pairs(samples)
    centre = seen.detach()[0].mean(0) if centre is None else centre
    in_cache = covariance.sums_in_cache(seen, centre)
    if in_cache and not seen.is_cuda:
        own = covariance.own(seen[:, None], Pairing.exact())
        return torch.diagonal_scatter(covariance.cross(seen, seen, centre), own)
    learns = torch.is_grad_enabled()
    elements = max(_LEAST_BLOCK[seen.is_cuda], rows**2 * pairs // 8)
    elements = elements if in_cache else min(elements, chunk_elements(seen.device))
    step = max(1, elements // max(1, pairs * rows)) if in_cache or learns else _tile(covariance, seen, in_cache)
    strip: Callable[..., Tensor] = partial(_strip, covariance, seen, centre)
    if learns and not in_cache and not kept_elements(rows, samples, dim, pairs, seen.device):
        strip = partial(checkpoint, strip, use_reentrant=False, preserve_rng_state=False)
    mirrored: Tensor = _Mirrored.apply(*(strip(start, min(start + step, rows)) for start in range(0, rows, step)))
    return mirrored


def kept_elements(rows: int, samples: int, dim: int, pairs: int, device: torch.device) -> int:
    """How many numbers the gradient keeps: all values of k_g (``pairs`` for one of K_f) if data are few, else none."""
    numbers = rows**2 * pairs // 2 + 3 * rows * samples * dim  # each block has copies of what g sees of its columns
    return numbers if numbers <= _KEPT_CHUNKS * chunk_elements(device) else 0


@in_smaller_chunks
@torch.no_grad()
def cross(covariance: Covariance, seen: Seen, others: OthersSeen, centre: Centre | None = None) -> Cross:
    """K_f between data and others, by square tiles: a product of narrow ones is faster than copies of its wide side."""
    centre = others[0].mean(0) if centre is None else centre
    side = _tile(covariance, seen, covariance.sums_in_cache(seen, centre))
    rows = max(1, min(side, len(seen)))
    columns = side * side // rows
    strips = [[covariance.cross(part, some, centre) for some in others.split(columns)] for part in seen.split(rows)]
    return torch.cat([torch.cat(strip, 1) for strip in strips])


def _tile(covariance: Covariance, seen: Seen, in_cache: bool) -> int:
    """Rows and columns of a tile of K_f."""
    if in_cache:
        return max(1, min(isqrt(chunk_elements(seen.device)) // 2, chunk_elements(seen.device) // seen[0].numel()))
    elements = min(chunk_elements(seen.device), _LEAST_BLOCK[seen.is_cuda])
    return max(1, isqrt(elements // covariance.pairs(seen.shape[1])))


def _strip(covariance: Covariance, seen: Seen, centre: Centre, start: int, stop: int) -> Float[Tensor, "n m"]:
    """Some rows of K_f, up to the diagonal. A datum with itself is exact: no distance is rounded."""
    rows = seen[start:stop]
    learns = torch.is_grad_enabled()
    means = covariance.cross(rows, seen[:stop]) if learns else cross(covariance, rows, seen[:stop], centre)
    return torch.diagonal_scatter(means, covariance.own(rows[:, None], Pairing.exact()), offset=start)


class _Mirrored(torch.autograd.Function):
    """The symmetric matrix whose rows up to the diagonal are given, some at a time."""

    @staticmethod
    def forward(ctx: Any, *strips: Tensor) -> Tensor:
        ctx.stops = [strip.shape[1] for strip in strips]
        result = strips[-1].new_empty(ctx.stops[-1], ctx.stops[-1])
        for start, stop, strip in zip([0, *ctx.stops], ctx.stops, strips, strict=False):
            result[start:stop, :stop] = strip
            result[:stop, start:stop] = strip.mT
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        # An entry left of the diagonal block stands for two.
        pairs = list(zip([0, *ctx.stops], ctx.stops, strict=False))
        return tuple(torch.cat([grad[a:b, :a] + grad[:a, a:b].mT, grad[a:b, a:b]], 1) for a, b in pairs)
