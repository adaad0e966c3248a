"""What exact inference costs, and whether that can be afforded.

One evaluation of the evidence with its gradient computes k_g between all pairs of samples twice, and two products as large
for the gradient of the samples:

    8 D (N S)^2 / 2 operations in the precision of the inputs, and about 4 N^3 a factorisation in double precision.

Bytes: K_f once in the precision of the inputs, and three matrices of N x N in double precision (the matrix, its factor, its
inverse); the samples themselves twice. Seconds follow from a nominal speed for each kind of device, not from a measurement:
the same data get the same inference on every day.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

# Operations a second: (single, double), for a thread of a CPU and for a GPU.
_CPU_SPEED = (20e9, 8e9)
_GPU_SPEED = (30e12, 20e12)
_SHARE = 0.5  # of the free memory


@dataclass(frozen=True)
class Cost:
    """Bytes at the peak, and operations of one evaluation in single and in double precision."""

    bytes: float
    single: float
    double: float

    def seconds(self, device: torch.device, threads: int = 1) -> float:
        """At the nominal speed."""
        single, double = _GPU_SPEED if device.type == "cuda" else (speed * threads for speed in _CPU_SPEED)
        return self.single / single + self.double / double


def evaluation_cost(rows: int, samples: int, dim: int, factorisations: int = 1, double: bool = False) -> Cost:
    """One evaluation of the exact evidence with its gradient. ``double``: inputs are in double precision."""
    kernel = 4.0 * (dim + 8) * (rows * samples) ** 2
    algebra = 4.0 * rows**3 * factorisations
    number = 8 if double else 4
    memory = rows**2 * (number + 24.0) + 2.0 * rows * samples * dim * number
    return Cost(memory, 0.0 if double else kernel, algebra + (kernel if double else 0.0))


def fit_seconds(
    rows: int, samples: int, dim: int, device: torch.device, threads: int, factorisations: int = 1, double: bool = False
) -> float:
    """A whole fit: most evaluations with few draws, some with more, a few with all of them."""
    plan = {max(1, samples // 4): 30, max(1, samples // 2): 8, samples: 4}
    return sum(
        count * evaluation_cost(rows, s, dim, factorisations, double).seconds(device, threads) for s, count in plan.items()
    )


def free_memory(device: torch.device) -> float:
    """Bytes that a new allocation may take, in all."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 4e9  # where the system does not say


def affordable(cost: Cost, seconds: float, limit: float, memory: float) -> str | None:
    """None where the fit can be afforded, else what stands against it, in a few words."""
    if cost.bytes > _SHARE * memory:
        return f"it needs {cost.bytes / 1e9:.1f} GB of memory and {memory / 1e9:.1f} GB are free"
    if seconds > limit:
        return f"it would take about {seconds:.0f} s, more than {limit:.0f} s"
    return None
