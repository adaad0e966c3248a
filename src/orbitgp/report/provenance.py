"""The versions and the hardware that a result was made with."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from orbitgp.saving.container import versions


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Versions of Python and the packages, and the hardware."""
    packages = versions("torch", "gpytorch", "numpy", "scikit-learn")
    hardware: dict[str, Any] = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.device(device).type == "cuda":
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {"versions": {"python": platform.python_version(), **packages}, "hardware": hardware}
