"""Minibatches: rows in random order, every datum once before any comes again."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

State = dict[str, Tensor]

_POOL = 256  # blocks that are mixed


class Minibatches:
    """Batches of the rows of ``count`` data. ``order`` holds the rows that are left of the present epoch.

    With ``block``, rows that lie together are read together: an epoch goes through pools of random blocks of so many rows, and
    is in random order only within each pool. That suits data on disk, and takes memory for one pool.
    """

    def __init__(self, count: int, generator: torch.Generator, block: int = 1) -> None:
        self.count, self.generator, self.block = count, generator, block
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
        taken, self.blocks = self.blocks[:_POOL], self.blocks[_POOL:]
        rows = (taken[:, None] * self.block + torch.arange(self.block, device=taken.device)).flatten()
        rows = rows[rows < self.count]
        return rows[self._shuffled(len(rows))]

    def _shuffled(self, count: int) -> Int[Tensor, " rows"]:
        return torch.randperm(count, generator=self.generator, device=self.generator.device)

    def state_dict(self) -> State:
        """The rows that are left. The generator, which others share, is saved by its owner."""
        return {"order": self.order, "blocks": self.blocks}

    def load_state_dict(self, state: State) -> None:
        """Continue with these rows."""
        self.order, self.blocks = state["order"], state["blocks"]
