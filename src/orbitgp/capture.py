"""A function of tensors on a GPU, recorded once and replayed as one launch (a CUDA graph).

A training step launches some three hundred kernels, and each costs the host a few microseconds, more than many of them run.
Recorded, they cost one launch. What is recorded are kernels and addresses: inputs are copied to where the first ones lay,
results and gradients appear where they did at first, and everything that is not a tensor on the device, sizes and options
too, stays as it was. Random draws are fresh in every replay if their generator is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class Captured(Generic[Result]):
    """``function(*inputs)``, recorded. Each call overwrites the result of the one before.

    The function must not wait for the device. If it computes gradients, it must begin by setting them to None.
    """

    def __init__(
        self, function: Callable[..., Result], inputs: Sequence[Tensor] = (), generators: Sequence[torch.Generator] = ()
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        # Libraries allocate their workspaces in the first calls, which must not be recorded.
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(*self.inputs)
        current.wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self.graph.register_generator_state(generator)
        with torch.cuda.graph(self.graph):
            self.result = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Result:
        for kept, new in zip(self.inputs, inputs, strict=True):
            kept.copy_(new)
        self.graph.replay()
        return self.result
