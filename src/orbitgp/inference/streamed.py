"""K_f of data of which g sees more than memory holds.

A feature map may yield a hundred thousand numbers for each of fifty thousand images. A product of matrices of that size
takes far longer than the map, so blocks of rows are mapped anew for each block of K_f:

    for each block of rows a, and each block b before it:    K_f[a, b] = cross(phi(a), phi(b))

Nothing else changes: the numbers are those of :mod:`orbitgp.inference.orbit_gram`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference import orbit_gram
from orbitgp.kernels.covariance import Covariance, Cross, OthersSeen, Seen
from orbitgp.machine import chunk_elements, in_smaller_chunks
from orbitgp.orbits.sampling import Inputs


@dataclass(frozen=True)
class Streamed:
    """What g sees of these rows, in this precision, computed when it is asked for. No gradient goes through it.

    ``numbers`` is how many g sees of one row, all samples of its orbit together.
    """

    see: Callable[[Inputs], Seen]
    x: Inputs
    numbers: int
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> torch.device:
        return self.x.device

    @torch.no_grad()
    def __getitem__(self, rows: slice | Int[Tensor, " rows"]) -> Seen:
        return self.see(self.x[rows]).to(self.dtype)

    def double(self) -> Streamed:
        return self if self.dtype == torch.float64 else replace(self, dtype=torch.float64)

    def blocks(self, stop: int | None = None) -> Iterator[tuple[slice, Seen]]:
        """Blocks of rows, with what g sees of them, up to the block that begins at ``stop``."""
        step = max(1, held_elements(self.x.device) // self.numbers)
        for start in range(0, len(self.x) if stop is None else stop, step):
            rows = slice(start, min(start + step, len(self.x)))
            yield rows, self[rows]


def held_elements(device: torch.device) -> int:
    """How many numbers g may see of all data before they are computed block by block; and as many for a block."""
    return 2 * chunk_elements(device)


def blocks(seen: Seen | Streamed) -> Iterator[Seen]:
    """What g sees, block by block; in one where it is at hand."""
    yield from (block for _, block in seen.blocks()) if isinstance(seen, Streamed) else (seen,)


@in_smaller_chunks
def gram(covariance: Covariance, seen: Seen | Streamed) -> Float[Tensor, "rows rows"]:
    """K_f of all data, in the dtype of what g sees."""
    if not isinstance(seen, Streamed):
        return orbit_gram.gram(covariance, seen)
    result = torch.empty(len(seen.x), len(seen.x), dtype=seen.dtype, device=seen.x.device)
    centre = seen[:1][0].mean(0)
    for rows, block in seen.blocks():
        result[rows, rows] = orbit_gram.gram(covariance, block, centre)
        for others, earlier in seen.blocks(rows.start):
            result[rows, others] = orbit_gram.cross(covariance, block, earlier, centre)
            result[others, rows] = result[rows, others].mT
    return result


def cross(covariance: Covariance, seen: Seen, others: OthersSeen | Streamed) -> Cross:
    """K_f between data and others."""
    centre = others[:1][0].mean(0)
    return torch.cat([orbit_gram.cross(covariance, seen, block, centre) for block in blocks(others)], 1)
