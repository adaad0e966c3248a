"""orbitgp: learn invariances from data with the marginal likelihood."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitgp import callbacks, feature_maps, orbits
    from orbitgp.comparison import Comparison, compare
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.evidence import Evidence
    from orbitgp.insensitive import insensitivity
    from orbitgp.invariant_kernel import InvariantKernel
    from orbitgp.variational import InvariantGP

__version__ = "0.1.0"

# Loaded on first use: ``import orbitgp`` is quick and needs no torch, and orbits need neither GPyTorch nor scikit-learn.
_LAZY = {
    "Comparison": "orbitgp.comparison",
    "Evidence": "orbitgp.evidence",
    "InvariantGP": "orbitgp.variational",
    "InvariantGPClassifier": "orbitgp.estimators",
    "InvariantGPRegressor": "orbitgp.estimators",
    "InvariantKernel": "orbitgp.invariant_kernel",
    "compare": "orbitgp.comparison",
    "insensitivity": "orbitgp.insensitive",
}

__all__ = [
    "Comparison",
    "Evidence",
    "InvariantGP",
    "InvariantGPClassifier",
    "InvariantGPRegressor",
    "InvariantKernel",
    "callbacks",
    "compare",
    "feature_maps",
    "insensitivity",
    "orbits",
]


def __getattr__(name: str) -> Any:
    if name in ("callbacks", "feature_maps", "orbits"):
        return import_module(f"orbitgp.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'orbitgp' has no attribute {name!r}")
