"""orbitgp: learn invariances from data with the marginal likelihood."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitgp import datasets, kernels, likelihoods, metrics, orbits, plotting, saving, training
    from orbitgp.comparison import Comparison, find_symmetry
    from orbitgp.comparison.compare import compare
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.inference.elbo import elbo
    from orbitgp.inference.evidence import Evidence
    from orbitgp.inference.model import InvariantGP
    from orbitgp.kernels import InvariantKernel
    from orbitgp.training import TrainingOptions

__version__ = "1.0.0"

__all__ = [
    "Comparison", "Evidence", "InvariantGP", "InvariantGPClassifier", "InvariantGPRegressor", "InvariantKernel",
    "TrainingOptions", "compare", "datasets", "elbo", "find_symmetry", "kernels", "likelihoods", "metrics", "orbits",
    "plotting", "saving", "training",
]  # fmt: skip

# Loaded on first use: ``import orbitgp`` is quick and needs no torch, orbits need neither GPyTorch nor scikit-learn.
_MODULES = {
    **dict.fromkeys(("Comparison", "compare", "find_symmetry"), "comparison"),
    **dict.fromkeys(("InvariantGPClassifier", "InvariantGPRegressor"), "estimators"),
    "Evidence": "inference.evidence",
    "InvariantGP": "inference.model",
    "InvariantKernel": "kernels",
    "TrainingOptions": "training",
    "elbo": "inference.elbo",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'orbitgp' has no attribute {name!r}")
    module = import_module(f"orbitgp.{_MODULES.get(name, name)}")
    return getattr(module, name) if name in _MODULES else module


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
