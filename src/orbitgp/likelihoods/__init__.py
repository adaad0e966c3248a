"""Quadratic bounds on log p(y | f)."""

from orbitgp.likelihoods.base import Likelihood, Quadratic
from orbitgp.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian", "Likelihood", "Quadratic"]
