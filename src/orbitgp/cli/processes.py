"""More than one process: ``torchrun … -m orbitgp learn``.

With torchrun, all processes load the same data, and each takes its own rows. The first one makes the run folder,
prints, and writes the report; the others say nothing and leave after the fits. One process does none of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def rank() -> int:
    """The number of this process, counted from 0, among those that torchrun has started."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def count() -> int:
    """How many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def silence_others() -> None:
    """Let only the first process print."""
    if rank() > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


@contextmanager
def process_group() -> Iterator[None]:
    """Let the processes that torchrun has started reach each other."""
    if count() > 1:
        import torch
        import torch.distributed as dist

        if gpus := torch.cuda.device_count():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
    try:
        yield
    finally:
        leave()


def leave() -> bool:
    """Work alone from here on. Whether this is the first process, which has more to do."""
    if count() > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    return rank() == 0


def own_rows(rows: np.ndarray) -> np.ndarray:
    """The rows of this process, of rows that all have."""
    if len(rows) < count():
        raise ValueError(f"{len(rows)} data cannot be shared by {count()} processes: start fewer.")
    start, end = (len(rows) * i // count() for i in (rank(), rank() + 1))
    return rows[start:end]
