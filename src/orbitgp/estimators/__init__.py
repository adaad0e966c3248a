"""The scikit-learn front: give it arrays, an orbit if you have one in mind, and call ``fit``."""

from orbitgp.estimators.classifier import InvariantGPClassifier
from orbitgp.estimators.regressor import InvariantGPRegressor

__all__ = ["InvariantGPClassifier", "InvariantGPRegressor"]
