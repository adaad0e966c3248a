"""K_f between data whose orbits are finite, block by block, and the gradient of a weighted sum of its entries.

    K_f(n, m) = mean over a, b of k_g(x_na, x_mb)

There are (N S)^2 values of k_g and N^2 of K_f, so blocks of k_g are averaged at once and never kept. For the gradient they are
made again. What g sees of all samples, N S vectors, is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.memory import chunk_elements, in_smaller_chunks
from orbitgp.kernels.covariance import Covariance
from orbitgp.orbits.sampling import Pairing

Seen = Float[Tensor, "rows samples dim"]
Others = Float[Tensor, "others samples dim"]

_LEAST_BLOCK = 2**21  # values of k_g; smaller blocks take longer than they save


@in_smaller_chunks
@torch.no_grad()
def gram(covariance: Covariance, seen: Seen) -> Float[Tensor, "rows rows"]:
    """K_f of all data, in the dtype of the samples. The kernel is one of vectors that g sees."""
    result = seen.new_empty(len(seen), len(seen))
    for block, before in _blocks(seen):
        values = _values(covariance, seen[block], seen[before])
        result[block, before] = values
        result[before, block] = values.mT
    return result


@in_smaller_chunks
@torch.no_grad()
def cross(covariance: Covariance, seen: Seen, others: Others) -> Float[Tensor, "rows others"]:
    """K_f between data and others."""
    step = _rows(seen, len(others), chunk_elements(seen.device))
    return torch.cat([covariance.cross(part, others) for part in seen.split(step)])


def pull_back(covariance: Covariance, seen: Seen, weights: Float[Tensor, "rows rows"], into_samples: bool) -> Seen | None:
    """The gradient of sum(weights * K_f), for symmetric weights: left in the kernel's parameters, and that of the samples."""
    leaf = seen.detach().requires_grad_(into_samples)
    for block, before in _blocks(seen):
        weight = weights[block, before].to(seen.dtype)
        # What lies left of the diagonal block stands for two entries each.
        weight = torch.cat([2 * weight[:, : block.start], weight[:, block.start :]], 1)
        values = _values(covariance, leaf[block], leaf[before])
        if values.requires_grad:
            values.backward(weight)
    return leaf.grad


def _values(covariance: Covariance, left: Seen, right: Others) -> Float[Tensor, "rows others"]:
    """K_f between some data and all up to the last of them. A datum with itself is exact: no distance is rounded."""
    means, own = covariance.expectations(left[:, None], right.flatten(0, 1), Pairing.exact())
    values = means[:, 0].unflatten(1, (len(right), -1)).mean(-1)
    return torch.diagonal_scatter(values, own, offset=len(right) - len(left))


def _blocks(seen: Seen) -> Iterator[tuple[slice, slice]]:
    """Rows, and the columns up to their end: the lower triangle and the diagonal blocks."""
    elements = chunk_elements(seen.device)
    if not seen.is_cuda:  # several blocks, so that little is computed above the diagonal
        elements = min(elements, max(_LEAST_BLOCK, (len(seen) * seen.shape[1]) ** 2 // 4))
    start = 0
    while start < len(seen):
        # Blocks grow shorter as their columns grow more.
        step = min(_rows(seen, start + 1, elements), len(seen) - start)
        stop = min(len(seen), start + max(1, min(step, _rows(seen, start + step, elements))))
        yield slice(start, stop), slice(0, stop)
        start = stop


def _rows(seen: Seen, columns: int, elements: int) -> int:
    samples = seen.shape[1]
    return max(1, elements // (samples * samples * max(columns, 1)))
