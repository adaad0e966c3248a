"""Likelihoods by name."""

from __future__ import annotations

from collections.abc import Callable

from orbitgp.likelihoods.base import Likelihood
from orbitgp.likelihoods.bernoulli import Bernoulli
from orbitgp.likelihoods.bohning import Bohning
from orbitgp.likelihoods.bouchard import Bouchard
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.dirichlet import Dirichlet
from orbitgp.likelihoods.gaussian import Gaussian, GaussianIndicators
from orbitgp.likelihoods.logistic_softmax import LogisticSoftmax
from orbitgp.likelihoods.noise import Noise
from orbitgp.likelihoods.one_vs_each import OneVsEach
from orbitgp.likelihoods.robust import Laplace, StudentT
from orbitgp.likelihoods.stick_breaking import StickBreaking

CLASSIFICATION: dict[str, Callable[[int], Classification]] = {
    "gaussian": GaussianIndicators,
    "stick-breaking": StickBreaking,
    "one-vs-each": OneVsEach,
    "bouchard": Bouchard,
    "bohning": Bohning,
    "logistic-softmax": LogisticSoftmax,
    "dirichlet": Dirichlet,
    "softmax": Dirichlet,
}
REGRESSION: dict[str, Callable[[int], Noise]] = {"gaussian": Gaussian, "student-t": StudentT, "laplace": Laplace}


def make_likelihood(name: str, *, num_classes: int | None = None, num_outputs: int = 1) -> Likelihood:
    """The likelihood of this name: for classification if ``num_classes`` is given, else for regression.

    ``bernoulli`` is for two classes; ``gaussian`` regresses on the indicators of classes; the other names for classification
    are for any number of classes, and ``softmax`` is the one of them to start with (``dirichlet``, by measurement).
    """
    if num_classes is None:
        if name not in REGRESSION:
            raise ValueError(f"a likelihood for regression is one of {', '.join(REGRESSION)}, got {name!r}.")
        return REGRESSION[name](num_outputs)
    if name == "bernoulli":
        if num_classes != 2:
            raise ValueError(f"the bernoulli likelihood is for 2 classes, got {num_classes}: use 'softmax' for more.")
        return Bernoulli()
    if name not in CLASSIFICATION:
        raise ValueError(f"a likelihood for classification is one of bernoulli, {', '.join(CLASSIFICATION)}, got {name!r}.")
    return CLASSIFICATION[name](num_classes)
