"""The base of feature maps with a few positive constants, each learned as its logarithm."""

from __future__ import annotations

from math import inf

import torch
from gpytorch import Module
from gpytorch.constraints import Positive
from torch import Tensor, nn


class LearnedConstants(Module):
    """A module with named positive constants, in the order in which they are given.

    The constant ``window`` is the parameter ``raw_window``, its logarithm.
    """

    def __init__(self, learn: bool, **values: float) -> None:
        super().__init__()
        self.learn = learn
        for name, value in values.items():
            if not 0 < value < inf:
                raise ValueError(f"{name} must be positive and finite, got {value}.")
            parameter = nn.Parameter(torch.tensor(value, dtype=torch.float64).log(), requires_grad=learn)
            self.register_parameter(f"raw_{name}", parameter)
            self.register_constraint(f"raw_{name}", Positive(transform=torch.exp, inv_transform=torch.log))

    def constants(self, dtype: torch.dtype) -> list[Tensor]:
        """All constants in this precision."""
        return [raw.to(dtype).exp() for raw in self.parameters(recurse=False)]

    def named_constants(self) -> dict[str, float]:
        """All constants by name, as plain numbers."""
        own = self.named_parameters(recurse=False)
        return {name.removeprefix("raw_"): raw.exp().item() for name, raw in own}

    def _described(self, **fixed: object) -> str:
        """What is fixed, then what is learned, as arguments of the constructor."""
        given = [f"{name}={value}" for name, value in fixed.items() if value is not None]
        return ", ".join([*given, *(f"{name}={value:.3g}" for name, value in self.named_constants().items())])
