"""What this machine has to offer: free memory."""

from __future__ import annotations

from pathlib import Path

import torch


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
