"""The versions and the hardware that a result was made with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

import orbitgp


def provenance(device: str = "cpu") -> dict[str, Any]:
    """Versions of Python and the packages, and the hardware."""
    packages = {name: version(name) for name in ("torch", "gpytorch", "numpy", "scikit-learn")}
    versions = {"python": platform.python_version(), "orbitgp": orbitgp.__version__, **packages}
    hardware: dict[str, Any] = {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.device(device).type == "cuda":
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {"versions": versions, "hardware": hardware}
