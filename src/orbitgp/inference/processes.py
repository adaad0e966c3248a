"""What several processes of one training run tell each other: sums, and nothing else.

All processes run the same program on the same random numbers. Each computes the terms of its own data, and sums over data are
added over the processes. With one process, or without ``torch.distributed``, everything here does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def add_(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its sum over the processes, in one message."""
    parts = list(tensors)
    if count() == 1 or not parts:
        return
    message = torch.cat([part.detach().reshape(-1).double() for part in parts])
    try:
        dist.all_reduce(message)
    except RuntimeError as error:
        raise ConnectionError(
            "another process of this run has ended, so it cannot go on: start all again, from the checkpoint if there is one."
        ) from error
    for part, total in zip(parts, message.split([part.numel() for part in parts]), strict=True):
        part.detach().copy_(total.reshape(part.shape))


def added(value: float, device: torch.device) -> float:
    """The sum of a number over the processes."""
    total = torch.tensor([value], dtype=torch.float64, device=device)
    add_([total])
    return float(total)


def everyones(value: Any) -> list[Any]:
    """What each process says, in their order. Anything that can be pickled may be said."""
    said: list[Any] = [None] * count()
    if count() == 1:
        return [value]
    dist.all_gather_object(said, value)
    return said


def together(work: Callable[[], Result]) -> Result:
    """Do the same on every process. What fails on one fails on all, so that none waits for it."""
    result, failure = None, None
    try:
        result = work()
    except (ValueError, TypeError, OSError) as error:
        failure = error
    for number, message in enumerate(everyones(None if failure is None else str(failure))):
        if message is not None and failure is None:
            raise ValueError(f"process {number}: {message}")
    if failure is not None:
        raise failure
    return cast(Result, result)


def firsts(value: Any) -> Any:
    """What the first process says."""
    said = [value]
    if count() > 1:
        dist.broadcast_object_list(said, src=0)
    return said[0]
