"""Data that are not one tensor: rows on disk, and rows that several processes share.

A :class:`RowSource` stands where a tensor of inputs stands during training. It has a length, the shape of a row and a
device, and it is indexed by row numbers. Indices count all data. A process reads its own rows (:func:`owned`); a few
rows of anyone's, such as those that become inducing points, are fetched (:func:`fetch`) by all processes together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference import processes
from orbitgp.orbits.sampling import BatchPositions, Inputs

RowIndex = Int[Tensor, " batch"]
Some = Float[Tensor, "batch *features"]

_SPACED_ROWS = 10_000  # evenly spaced rows that stand for all
_POOLED_BLOCKS = 256  # blocks on disk that are shuffled together


class RowSource:
    """Inputs that are read when they are needed."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    block: int = 1  # rows that should be read together

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: RowIndex) -> Some:
        """These rows, which must be this process's own."""
        raise NotImplementedError

    def fetch(self, index: RowIndex) -> Some:
        """These rows, whoever holds them."""
        return self[index]

    def prefetch(self, index: RowIndex) -> None:
        """Begin to read these rows of this process, which come soon."""


AllInputs = Inputs | RowSource  # of a fit, wherever they are


class StoredRows(RowSource):
    """Rows of an array that stays where it is: a memory map, an HDF5 or Zarr array, anything that ``read`` can read.

    ``read(index)`` takes sorted row numbers without repetitions and returns an array. Its numbers stay as small as they
    are stored until they are on the device. A thread reads rows that are known beforehand, while others are computed.
    """

    block = 64

    def __init__(
        self,
        read: Callable[[np.ndarray], np.ndarray],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.read, self.shape, self.dtype, self.device = read, torch.Size(shape), dtype, device
        self.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="orbitgp-read")
        self.coming: dict[bytes, Future[Tensor]] = {}  # that nobody has asked for yet

    def __getitem__(self, index: RowIndex) -> Some:
        rows = index.cpu().numpy()
        found = (self.coming.pop(rows.tobytes(), None) or self.reader.submit(self._read, rows)).result()
        return found.to(self.device).to(self.dtype).reshape(len(index), *self.shape[1:])

    def prefetch(self, index: RowIndex) -> None:
        rows = index.cpu().numpy()
        self.coming[rows.tobytes()] = self.reader.submit(self._read, rows)
        while len(self.coming) > 3:  # those that were not asked for after all
            self.coming.pop(next(iter(self.coming))).cancel()

    def _read(self, rows: np.ndarray) -> Tensor:
        """These rows as they are stored."""
        unique, inverse = np.unique(rows, return_inverse=True)
        found = np.ascontiguousarray(self.read(unique))[inverse]
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            bad = rows[~np.isfinite(found.reshape(len(rows), -1)).all(1)][0]
            raise ValueError(f"X contains NaN or infinity in row {int(bad)}.")
        return torch.from_numpy(found)


class SharedRows(RowSource):
    """The rows of all processes, one process's after the other's; each holds its own."""

    def __init__(self, local: AllInputs) -> None:
        own = len(local), 1 if isinstance(local, Tensor) else local.block
        sizes, blocks = zip(*processes.all_gather(own), strict=True)
        self.local, self.start = local, sum(sizes[: processes.rank()])
        self.shape = torch.Size((sum(sizes), *local.shape[1:]))
        self.dtype, self.device = local.dtype, local.device
        self.block = max(blocks)  # all processes draw the same batches, though some may have loaded their few rows

    def __getitem__(self, index: RowIndex) -> Some:
        return self.local[index - self.start]

    def own(self, index: RowIndex) -> Int[Tensor, " own"]:
        """Which of these rows, by their positions in ``index``, this process holds."""
        inside = (index >= self.start) & (index < self.start + len(self.local))
        return inside.nonzero()[:, 0]

    def prefetch(self, index: RowIndex) -> None:
        if isinstance(self.local, RowSource):
            self.local.prefetch(index - self.start)

    def fetch(self, index: RowIndex) -> Some:
        own = self.own(index)
        found = torch.zeros(len(index), *self.shape[1:], dtype=self.dtype, device=self.device)
        if len(own):
            found[own.to(self.device)] = self[index[own]]
        processes.all_reduce([found])
        return found


class Owned(NamedTuple):
    """The rows of a batch that this process computes, and where they stand in the batch (None: it computes all)."""

    rows: Int[Tensor, " own"]
    among: BatchPositions | None


def owned(x: AllInputs, index: RowIndex) -> Owned:
    """The part of a batch that is this process's."""
    if not isinstance(x, SharedRows):
        return Owned(index, None)
    own = x.own(index)
    return Owned(index[own], BatchPositions(own, len(index)))


def fetch(x: AllInputs, index: RowIndex) -> Some:
    """Some rows of the data, on every process."""
    return x.fetch(index) if isinstance(x, RowSource) else x[index.to(x.device)]


def first(x: AllInputs, count: int) -> Some:
    """The first ``count`` rows of the data, or all if there are fewer, on every process."""
    return fetch(x, torch.arange(min(count, len(x)), device=x.device))


def spaced(x: AllInputs) -> Some:
    """Evenly spaced rows of the data, all if these are not many, on every process."""
    count = min(_SPACED_ROWS, len(x))
    return fetch(x, torch.linspace(0, len(x) - 1, count, device=x.device, dtype=torch.float64).round().long())


def prefetch(x: AllInputs, index: RowIndex) -> None:
    """Begin to read the part of these rows that is this process's, where data are on disk."""
    if isinstance(x, RowSource) and len(own := owned(x, index).rows):
        x.prefetch(own)


class Minibatches:
    """Batches of these data. ``order`` holds the rows that are left of the present epoch.

    On disk, rows that lie together are read together: an epoch goes through pools of random blocks, and is in random
    order only within each pool. That takes memory for one pool.
    """

    def __init__(self, x: AllInputs, generator: torch.Generator) -> None:
        self.count, self.generator, self.block = len(x), generator, 1 if isinstance(x, Tensor) else x.block
        self.order = torch.empty(0, dtype=torch.long, device=generator.device)
        self.blocks = torch.empty(0, dtype=torch.long, device=generator.device)  # that are left of the present epoch

    def take(self, size: int) -> Int[Tensor, " rows"]:
        """The next rows."""
        known = size if self.block == 1 else 2 * size  # what is on disk is read beforehand
        while len(self.order) < known:
            self.order = torch.cat([self.order, self._shuffled(self.count) if self.block == 1 else self._pool()])
        rows, self.order = self.order[:size], self.order[size:]
        return rows

    def upcoming(self, size: int) -> Int[Tensor, " rows"]:
        """The rows that the next batch begins with, as far as they are known."""
        return self.order[:size]

    def _pool(self) -> Int[Tensor, " rows"]:
        """The rows of the next blocks, in random order."""
        if not len(self.blocks):
            self.blocks = self._shuffled(-(-self.count // self.block))
        taken, self.blocks = self.blocks[:_POOLED_BLOCKS], self.blocks[_POOLED_BLOCKS:]
        rows = (taken[:, None] * self.block + torch.arange(self.block, device=taken.device)).flatten()
        rows = rows[rows < self.count]
        return rows[self._shuffled(len(rows))]

    def _shuffled(self, count: int) -> Int[Tensor, " rows"]:
        return torch.randperm(count, generator=self.generator, device=self.generator.device)

    def state_dict(self) -> dict[str, Tensor]:
        """The rows that are left. The generator, which others share, is saved by its owner."""
        return {"order": self.order, "blocks": self.blocks}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue with these rows."""
        self.order, self.blocks = state["order"], state["blocks"]


def checksum(x: AllInputs) -> str:
    """A fingerprint of data, by evenly spaced rows if there are many. It does not depend on who holds which rows."""
    content = spaced(x).cpu().contiguous().numpy().tobytes()
    return f"{hashlib.sha256(content).hexdigest()[:16]} {tuple(x.shape)} {x.dtype}"


def spread(x: AllInputs) -> float:
    """The standard deviation of a feature or a target (root mean square over them), 1 where nothing varies."""
    return float(spaced(x).double().var(0, correction=0).mean().sqrt()) or 1.0
