"""K_f between data whose orbits are finite, block by block, and the gradient of a weighted sum of its entries.

    K_f(n, m) = mean over a, b of k_g(x_na, x_mb)

There are (N S)^2 values of k_g and N^2 of K_f, so blocks of k_g are averaged at once. Where data are few, they are kept for the
gradient, which takes one product of matrices less; others are made again. What g sees of all samples, N S vectors, is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.memory import chunk_elements, in_smaller_chunks
from orbitgp.kernels.covariance import Covariance

Seen = Float[Tensor, "rows samples dim"]
Others = Float[Tensor, "others samples dim"]

_LEAST_BLOCK = 2**21  # values of k_g; smaller blocks take longer than they save
_KEPT_CHUNKS = 5  # intermediates of the largest size that may be kept for the gradient


class Block(NamedTuple):
    """Some rows of K_f, up to the diagonal."""

    start: int
    stop: int
    values: Float[Tensor, "rows columns"]


class Kept(NamedTuple):
    """What g sees of the data, and K_f of them, with the graph of autograd."""

    leaf: Seen
    blocks: list[Block]


@in_smaller_chunks
@torch.no_grad()
def gram(covariance: Covariance, seen: Seen) -> Float[Tensor, "rows rows"]:
    """K_f of all data, in the dtype of the samples. The kernel is one of vectors that g sees."""
    return _filled(seen, _blocks(covariance, seen))


def kept_elements(rows: int, samples: int, dim: int, device: torch.device) -> int:
    """How many numbers are kept for the gradient: all values of k_g where data are few, else none."""
    points = rows * samples
    numbers = points**2 // 2 + 3 * points * dim  # each block has copies of what g sees of its columns
    return numbers if numbers <= _KEPT_CHUNKS * chunk_elements(device) else 0


@in_smaller_chunks
def gram_to_pull_back(covariance: Covariance, seen: Seen, into_samples: bool) -> tuple[Float[Tensor, "rows rows"], Kept | None]:
    """K_f, and what :func:`pull_back` needs of it where data are few."""
    rows, samples, dim = seen.shape
    if not kept_elements(rows, samples, dim, seen.device):
        return gram(covariance, seen), None
    leaf = seen.detach().requires_grad_(into_samples)
    with torch.enable_grad():
        blocks = list(_blocks(covariance, leaf))
    return _filled(seen, blocks), Kept(leaf, blocks)


@in_smaller_chunks
@torch.no_grad()
def cross(covariance: Covariance, seen: Seen, others: Others) -> Float[Tensor, "rows others"]:
    """K_f between data and others."""
    step = _rows(seen, len(others), chunk_elements(seen.device))
    return torch.cat([covariance.cross(part, others) for part in seen.split(step)])


def pull_back(
    covariance: Covariance, seen: Seen, weights: Float[Tensor, "rows rows"], into_samples: bool, kept: Kept | None = None
) -> Seen | None:
    """The gradient of sum(weights * K_f), for symmetric weights: left in the kernel's parameters, and that of the samples."""
    leaf = seen.detach().requires_grad_(into_samples) if kept is None else kept.leaf
    for start, stop, values in _blocks(covariance, leaf) if kept is None else kept.blocks:
        weight = weights[start:stop, :stop].to(seen.dtype, copy=True)
        weight[:, :start] *= 2  # what lies left of the diagonal block stands for two entries each
        if values.requires_grad:
            values.backward(weight)
    return leaf.grad


@torch.no_grad()
def _filled(seen: Seen, blocks: Iterable[Block]) -> Float[Tensor, "rows rows"]:
    """K_f, from its blocks."""
    result = seen.new_empty(len(seen), len(seen))
    for start, stop, values in blocks:
        result[start:stop, :stop] = values
        result[:stop, start:stop] = values.mT
    return result


def _blocks(covariance: Covariance, seen: Seen) -> Iterator[Block]:
    """K_f, some rows at a time, each up to the diagonal."""
    elements = chunk_elements(seen.device)
    if not seen.is_cuda:  # several blocks, so that little is computed above the diagonal
        elements = min(elements, max(_LEAST_BLOCK, (len(seen) * seen.shape[1]) ** 2 // 8))
    step = _rows(seen, len(seen), elements)
    for start in range(0, len(seen), step):
        stop = min(start + step, len(seen))
        yield Block(start, stop, covariance.gram_rows(seen, start, stop))


def _rows(seen: Seen, columns: int, elements: int) -> int:
    samples = seen.shape[1]
    return max(1, elements // (samples * samples * max(columns, 1)))
