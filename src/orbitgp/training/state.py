"""The state of a training run: nested dictionaries and lists of tensors and numbers.

Each part of a run that changes from step to step owns its state, through ``state_dict`` and ``load_state_dict``. The trainer
collects them. A state that was read from a file lies on the CPU: :func:`copied_to` moves every tensor of it at once, so that no
part has to think of devices.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Stateful(Protocol):
    """A part of a run that can be saved and continued."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the part's future depends on."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Continue from a state."""


class GeneratorState:
    """The state of a random generator. PyTorch keeps it on the CPU, wherever the generator draws."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["state"].cpu())


def copied_to(device: torch.device, state: Any) -> Any:
    """A copy of a state, with every tensor on this device."""
    if isinstance(state, Tensor):
        return state.detach().to(device, copy=True)
    if isinstance(state, dict):
        return {name: copied_to(device, value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied_to(device, value) for value in state)
    return state
