"""The memory of this machine and its devices: how much is free, and tables that are kept in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, wraps
from pathlib import Path

import torch
from torch import Tensor


def free_memory(device: torch.device) -> float:
    """Bytes that a new allocation may take, in all."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # for reuse
        return float(torch.cuda.mem_get_info(device)[0] + kept)
    try:  # what Linux would give, caches of files included
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * float(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 4e9  # where the system does not say


def constant(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Cache ``make(*args)``, in float64 by default, else in ``dtype`` on ``device``. Do not write to the result.

    A copy from the host to a GPU waits until the GPU has finished all earlier work. So a table that is copied in every step
    makes every step wait.
    """

    @cache
    @wraps(make)
    def kept(*args: Hashable, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
        with torch.inference_mode(False):  # a later backward pass may need the table
            return make(*args).to(dtype=dtype, device=device)

    return kept
