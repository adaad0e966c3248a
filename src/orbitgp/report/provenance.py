"""What a result was made with: settings of the model, versions and hardware."""

from __future__ import annotations

import os
import platform
from typing import Any, Protocol

import torch

from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.likelihoods import Likelihood
from orbitgp.report.fitted import Fitted
from orbitgp.report.words import seen_by_g
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


class Configured(Fitted, Protocol):
    """A fitted estimator that remembers its arguments."""

    likelihood_: Likelihood
    random_state: Any
    device: Any


def model_settings(model: Configured) -> dict[str, str]:
    """How a fitted estimator was made, by name; what does not apply is left out."""
    kernel = model.kernel_.base_kernel if isinstance(model.kernel_, FeatureMapKernel) else model.kernel_
    names = [type(part).__name__ for part in kernel.modules() if type(part).__name__.endswith("Kernel")]
    listed = {
        "Likelihood": type(model.likelihood_).__name__,
        "Kernel": " of ".join(dict.fromkeys(names)),
        "Feature map": seen_by_g(model),
        **_inference(model),
        "Seed": str(model.random_state),
        "Device": str(model.device),
    }
    return {name: value for name, value in listed.items() if value}


def _inference(model: Fitted) -> dict[str, str]:
    """How the posterior was found."""
    steps, samples = model.history_[-1]["step"], model.evidence_.num_samples
    if isinstance(model.model_, InvariantGP):
        return {"Inference": "sparse", "Inducing points": f"{len(model.model_.inducing):,}", "Steps": f"{steps:,}"}
    count, learned = model.evidence_.num_data, model.evidence_.learned_from
    some = f"; learned on {learned:,} of {count:,} data, conditioned on all" if learned < count else ""
    return {
        "Inference": f"exact, without inducing points{some}",
        "Orbit samples": "all elements of the orbit" if samples is None else f"{samples}, the same for every datum",
        "Steps": f"{steps:,} evaluations of the evidence",
    }
