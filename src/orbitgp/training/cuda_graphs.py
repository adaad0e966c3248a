"""A function of tensors on a GPU, recorded once and replayed as one launch (a CUDA graph).

A training step launches some three hundred kernels. Each launch costs the host a few microseconds, which is more than many
kernels take to run. A recorded step costs one launch. The recording holds kernels and memory addresses: each call copies its
inputs to the addresses of the first inputs, and finds results and gradients where the first call left them. Everything that is
not a tensor on the device, such as sizes and options, stays as it was. Random draws continue from the state of their generator,
as if every kernel were launched.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

logger = logging.getLogger("orbitgp")


class Captured(Generic[Result]):
    """``function(*inputs)``, recorded. Each call overwrites the result of the one before.

    The function must not wait for the device, and everything random in it must come from ``generators``. If it computes the
    gradients of ``parameters``, it must begin by setting them to None. Recording leaves no trace in the generators.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        inputs: Sequence[Tensor] = (),
        generators: Sequence[torch.Generator] = (),
        parameters: Iterable[Tensor] = (),
    ) -> None:
        self.inputs = [tensor.clone() for tensor in inputs]
        devices = [tensor.device for tensor in inputs] + [generator.device for generator in generators]
        self.device = devices[0] if devices else torch.device("cuda")
        with torch.cuda.device(self.device):
            states = [generator.get_state() for generator in generators]
            try:
                self._warm_up(function)
            finally:
                _set_states(generators, states)
            self.graph = torch.cuda.CUDAGraph()
            for generator in generators:
                self.graph.register_generator_state(generator)
            try:
                # Record on a stream of this device. The outer context restores the current stream even if the recording fails.
                stream = torch.cuda.Stream()
                with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(self.graph, stream=stream):
                    self.result = function(*self.inputs)
            except RuntimeError:
                _set_states([_mended(generator) for generator in generators], states)
                raise
            _set_states(generators, states)
        self.gradients = [(parameter, parameter.grad) for parameter in parameters]

    def _warm_up(self, function: Callable[..., Result]) -> None:
        """The first calls, in which libraries allocate their workspaces, must not be recorded."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            function(*self.inputs)
            with _no_waiting():
                for _ in range(2):
                    function(*self.inputs)
        current.wait_stream(stream)

    def __call__(self, *inputs: Tensor) -> Result:
        for kept, new in zip(self.inputs, inputs, strict=True):
            kept.copy_(new)
        with torch.cuda.device(self.device):
            self.graph.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return self.result


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Raise an error where the host waits for the device. Such a function cannot be recorded, and now it fails cleanly."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that it misses some waits; these fail when they are recorded
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _mended(generator: torch.Generator) -> torch.Generator:
    """This generator with a fresh inner state: after a failed recording, the old one still counts as being recorded."""
    generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())
    return generator


def _set_states(generators: Sequence[torch.Generator], states: Sequence[Tensor]) -> None:
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


class Replayed(Generic[Result]):
    """``function(*inputs)``, recorded at the first call, and recorded again whenever ``version()`` changes.

    A function that cannot be recorded, because it waits for the device, is called without a recording.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        version: Callable[[], object],
        generators: Sequence[torch.Generator] = (),
        parameters: Iterable[Tensor] = (),
    ) -> None:
        self.function, self.version = function, version
        self.generators, self.parameters = list(generators), list(parameters)
        self.recorded: tuple[object, Captured[Result] | None] | None = None
        self.replays = 0

    def release(self) -> None:
        """Drop the recording and free its memory. The next call records again."""
        self.recorded = None

    def __call__(self, *inputs: Tensor) -> Result:
        if self.recorded is None or (self.recorded[1] is not None and self.recorded[0] != self.version()):
            self.recorded = self.version(), self._record(inputs)
        captured = self.recorded[1]
        if captured is None:
            return self.function(*inputs)
        self.replays += 1
        return captured(*inputs)

    def _record(self, inputs: Sequence[Tensor]) -> Captured[Result] | None:
        try:
            return Captured(self.function, inputs, self.generators, self.parameters)
        except RuntimeError as error:
            logger.info("a step cannot be recorded as a CUDA graph and is launched instead: %s", str(error).split("\n")[0])
            return None
