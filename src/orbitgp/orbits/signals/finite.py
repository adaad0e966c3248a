"""Finite orbits of signals: backwards, and with channels exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from orbitgp.orbits.base import FiniteOrbit
from orbitgp.orbits.permutation import Permutation
from orbitgp.orbits.sampling import Elements, Inputs
from orbitgp.orbits.signals.base import SignalOrbit


class Reversal(FiniteOrbit, SignalOrbit):
    """The signal, and the signal backwards in time."""

    size = 2

    def elements(self, x: Inputs) -> Elements:
        return torch.stack([x, x.flip(-1)], dim=1)

    def saved_arguments(self) -> dict[str, Any]:
        return {}


class ChannelPermutation(FiniteOrbit, SignalOrbit):
    """The signal with its channels permuted; arguments as for :class:`orbitgp.orbits.Permutation`, of channels."""

    index: Tensor

    def __init__(self, permutations: Iterable[Sequence[int]], close: bool = False) -> None:
        super().__init__()
        self.register_buffer("index", Permutation(permutations, close=close).index)
        self.size = len(self.index)

    def check(self, features: torch.Size) -> None:
        channels = self.index.shape[1]
        if len(features) != 2 or features[0] != channels:
            expected = f"ChannelPermutation acts on signals ({channels}, T)"
            raise ValueError(f"{expected}, but the inputs have shape {tuple(features)}.")

    def elements(self, x: Inputs) -> Elements:
        self.check(x.shape[1:])
        return x[:, self.index]

    def saved_arguments(self) -> dict[str, Any]:
        return {"permutations": self.index.tolist()}
