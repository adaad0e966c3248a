"""Memory of this machine and its devices: what is free, what an intermediate may take, and tables that are kept in it.

Work over many rows goes in chunks. Where a chunk does not fit, because others use the device too, chunks are halved for
the rest of the process and the work is done again. So a run that was given too little memory gets slower and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

logger = logging.getLogger("orbitgp")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Tensors = tuple[Tensor, ...]

_halved = 0
_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")  # the last: cuBLAS, cuSOLVER


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

    A copy from the host to a GPU waits until the GPU has finished all earlier work. So a table that is copied in every
    step makes every step wait.
    """

    @cache
    @wraps(make)
    def kept(*args: Hashable, dtype: torch.dtype = torch.float64, device: torch.device | None = None) -> Tensor:
        with torch.inference_mode(False):  # a later backward pass may need the table
            return make(*args).to(dtype=dtype, device=device)

    return kept


def chunk_elements(device: torch.device) -> int:
    """How many numbers an intermediate of streamed data may have: enough to keep the device busy, few enough to fit."""
    if device.type == "cuda":  # a sixty-fourth of its memory in single precision, as several models may share it
        return (int(torch.cuda.get_device_properties(device).total_memory) // 256) >> _halved
    return 2**24 >> _halved


def in_smaller_chunks(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Repeat work that ran out of memory, with chunks half as large. It must leave nothing behind where it fails."""

    @wraps(work)
    def repeated(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        global _halved
        while True:
            try:
                return work(*args, **kwargs)
            except RuntimeError as error:
                no_memory = isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in _NO_MEMORY)
                if not no_memory or _halved >= 8:
                    raise
            # Outside the handler, so that the tensors of the failed attempt are gone.
            _halved += 1
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            logger.warning("memory ran out: going on in chunks of a %dth of their size.", 2**_halved)

    return repeated


def split_rows(x: Tensor, rows: int) -> Tensors:
    """Parts of this many rows; a graph that is exported is for any number of rows, and has one part."""
    return (x,) if torch.compiler.is_exporting() else x.split(rows)


def in_parts(work: Callable[[Tensor], Tensors], parts: Tensors, kept: int = 1) -> Tensors:
    """What work makes of all rows, part for part. For the gradient of more than ``kept`` parts, it is done again."""
    again = torch.is_grad_enabled() and len(parts) > kept
    found = [checkpoint(work, x, use_reentrant=False, preserve_rng_state=False) if again else work(x) for x in parts]
    return tuple(torch.cat(terms) for terms in zip(*found, strict=True))
