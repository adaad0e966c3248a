"""Minibatches: rows in random order, every datum once before any comes again."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

State = dict[str, Tensor]


class Minibatches:
    """Batches of the rows of ``count`` data. ``order`` holds the rows that are left of the present epoch."""

    def __init__(self, count: int, generator: torch.Generator) -> None:
        self.count, self.generator = count, generator
        self.order = torch.empty(0, dtype=torch.long, device=generator.device)

    def take(self, size: int) -> Int[Tensor, " rows"]:
        """The next rows."""
        while len(self.order) < size:
            fresh = torch.randperm(self.count, generator=self.generator, device=self.generator.device)
            self.order = torch.cat([self.order, fresh])
        rows, self.order = self.order[:size], self.order[size:]
        return rows

    def state_dict(self) -> State:
        """The rows that are left. The generator, which others share, is saved by its owner."""
        return {"order": self.order}

    def load_state_dict(self, state: State) -> None:
        """Continue with these rows."""
        self.order = state["order"]
