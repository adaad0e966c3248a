"""Quadratic bounds on log p(y | f)."""

from orbitgp.likelihoods.base import Likelihood, Quadratic
from orbitgp.likelihoods.bernoulli import Bernoulli
from orbitgp.likelihoods.bohning import Bohning
from orbitgp.likelihoods.bouchard import Bouchard
from orbitgp.likelihoods.classification import Classification, Softmax
from orbitgp.likelihoods.dirichlet import Dirichlet
from orbitgp.likelihoods.gap import Gap, gap, gap_table
from orbitgp.likelihoods.gaussian import Gaussian, GaussianIndicators
from orbitgp.likelihoods.logistic_softmax import LogisticSoftmax
from orbitgp.likelihoods.noise import Noise
from orbitgp.likelihoods.one_vs_each import OneVsEach
from orbitgp.likelihoods.predictive import Categorical, Predictive, ScaleMixture
from orbitgp.likelihoods.registry import make_likelihood
from orbitgp.likelihoods.robust import Laplace, StudentT
from orbitgp.likelihoods.stick_breaking import StickBreaking

__all__ = [
    "Bernoulli",
    "Bohning",
    "Bouchard",
    "Categorical",
    "Classification",
    "Dirichlet",
    "Gap",
    "Gaussian",
    "GaussianIndicators",
    "Laplace",
    "Likelihood",
    "LogisticSoftmax",
    "Noise",
    "OneVsEach",
    "Predictive",
    "Quadratic",
    "ScaleMixture",
    "Softmax",
    "StickBreaking",
    "StudentT",
    "gap",
    "gap_table",
    "make_likelihood",
]
