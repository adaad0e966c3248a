"""The processes of one training run, and the few collective operations by which they agree.

All processes run the same program on the same random numbers. Each computes the terms of its own data, and sums over
data are added over the processes. With one process, or without ``torch.distributed``, everything here does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

Result = TypeVar("Result")


def count() -> int:
    """How many processes share the data."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process. The first one, 0, writes files and shows progress."""
    return dist.get_rank() if count() > 1 else 0


def all_reduce(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over the processes, in one message."""
    parts = list(tensors)
    if count() == 1 or not parts:
        return
    message = torch.cat([part.detach().reshape(-1).double() for part in parts])
    with _all_alive():
        dist.all_reduce(message)
    for part, total in zip(parts, message.split([part.numel() for part in parts]), strict=True):
        part.detach().copy_(total.reshape(part.shape))


def all_gather(value: Any) -> list[Any]:
    """The value of each process, in their order. It may be anything that can be pickled."""
    values = [value] * count()
    if count() > 1:
        with _all_alive():
            dist.all_gather_object(values, value)
    return values


def broadcast(value: Any) -> Any:
    """The value of the first process."""
    values = [value]
    if count() > 1:
        with _all_alive():
            dist.broadcast_object_list(values, src=0)
    return values[0]


def run_on_all(work: Callable[[], Result]) -> Result:
    """Do the same on every process. What fails on one fails on all, so that none waits for it."""
    result, failure = None, None
    try:
        result = work()
    except (ValueError, TypeError, OSError) as error:
        failure = error
    messages = all_gather(None if failure is None else str(failure))
    if failure is not None:
        raise failure
    for number, message in enumerate(messages):
        if message is not None:
            raise ValueError(f"process {number}: {message}")
    return cast(Result, result)


@contextmanager
def _all_alive() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            "another process of this run has ended, so it cannot go on: start all again, from any checkpoint."
        ) from error
