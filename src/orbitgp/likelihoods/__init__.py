"""Likelihoods, each as a quadratic bound on log p(y | f)."""

from orbitgp.likelihoods.base import Likelihood, Moments, Quadratic
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.dirichlet import Dirichlet
from orbitgp.likelihoods.gaussian import Gaussian, GaussianIndicators
from orbitgp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from orbitgp.likelihoods.logistic import Bernoulli, StickBreaking
from orbitgp.likelihoods.noise import Laplace, Noise, StudentT
from orbitgp.likelihoods.predictive import Categorical, ScaleMixture
from orbitgp.likelihoods.registry import make_likelihood

__all__ = [
    "Bernoulli", "Categorical", "Classification", "Dirichlet", "Gaussian", "GaussianIndicators", "HeteroscedasticGaussian",
    "Laplace", "Likelihood", "Moments", "Noise", "Quadratic", "ScaleMixture", "StickBreaking", "StudentT", "make_likelihood",
]  # fmt: skip
