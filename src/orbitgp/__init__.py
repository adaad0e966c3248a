"""orbitgp: learn invariances from data with the marginal likelihood."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitgp import datasets, kernels, likelihoods, metrics, orbits, plotting, saving, training
    from orbitgp.comparison.compare import compare
    from orbitgp.comparison.result import Comparison
    from orbitgp.comparison.symmetry import find_symmetry
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.inference.elbo import elbo
    from orbitgp.inference.evidence import Evidence
    from orbitgp.inference.model import InvariantGP
    from orbitgp.kernels.invariant import InvariantKernel
    from orbitgp.training import TrainingOptions

__version__ = "1.0.0"

# Loaded on first use: ``import orbitgp`` is quick and needs no torch, and orbits need neither GPyTorch nor scikit-learn.
_MODULES = ("datasets", "kernels", "likelihoods", "metrics", "orbits", "plotting", "saving", "training")
_NAMES = {
    "Comparison": "orbitgp.comparison",
    "Evidence": "orbitgp.inference.evidence",
    "InvariantGP": "orbitgp.inference.model",
    "InvariantGPClassifier": "orbitgp.estimators",
    "InvariantGPRegressor": "orbitgp.estimators",
    "InvariantKernel": "orbitgp.kernels.invariant",
    "TrainingOptions": "orbitgp.training",
    "compare": "orbitgp.comparison",
    "find_symmetry": "orbitgp.comparison",
    "elbo": "orbitgp.inference.elbo",
}

__all__ = [
    "Comparison",
    "Evidence",
    "InvariantGP",
    "InvariantGPClassifier",
    "InvariantGPRegressor",
    "InvariantKernel",
    "TrainingOptions",
    "compare",
    "datasets",
    "elbo",
    "find_symmetry",
    "kernels",
    "likelihoods",
    "metrics",
    "orbits",
    "plotting",
    "saving",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"orbitgp.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'orbitgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
