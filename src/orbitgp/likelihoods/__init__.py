"""Likelihoods, each as a quadratic bound on log p(y | f), and their names."""

from collections.abc import Callable

from orbitgp.likelihoods.base import Likelihood, Moments, Quadratic
from orbitgp.likelihoods.classification import Classification
from orbitgp.likelihoods.counts import NegativeBinomial
from orbitgp.likelihoods.dirichlet import Dirichlet
from orbitgp.likelihoods.gaussian import Gaussian, GaussianIndicators, HeteroscedasticGaussian
from orbitgp.likelihoods.logistic import Bernoulli
from orbitgp.likelihoods.noise import Noise, StudentT
from orbitgp.likelihoods.predictive import Categorical, CountMixture, ScaleMixture

__all__ = [
    "Bernoulli", "Categorical", "Classification", "CountMixture", "Dirichlet", "Gaussian", "GaussianIndicators",
    "HeteroscedasticGaussian", "Likelihood", "Moments", "NegativeBinomial", "Noise", "Quadratic", "ScaleMixture",
    "StudentT", "make_likelihood",
]  # fmt: skip

CLASSIFICATION: dict[str, Callable[[int], Classification]] = {
    "bernoulli": Bernoulli,
    "gaussian": GaussianIndicators,
    "dirichlet": Dirichlet,
}
REGRESSION: dict[str, Callable[[int], Likelihood]] = {
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "student-t": StudentT,
    "negative-binomial": NegativeBinomial,
}


def make_likelihood(name: str, *, num_classes: int | None = None, num_outputs: int = 1) -> Likelihood:
    """The likelihood of this name: for classification if ``num_classes`` is given, else for regression.

    For classification, ``bernoulli`` takes two classes. ``dirichlet`` and ``gaussian`` take any number. Start
    with ``dirichlet`` for three classes or more. ``gaussian`` is a regression on the indicators of the classes.

    For regression, ``gaussian`` is the default. ``student-t`` resists outliers, the noise of
    ``heteroscedastic`` depends on the inputs, and ``negative-binomial`` is for counts.

        >>> make_likelihood("student-t", num_outputs=2)
        StudentT()
    """
    if num_classes is None:
        if name not in REGRESSION:
            raise ValueError(f"a likelihood for regression is one of {', '.join(REGRESSION)}, got {name!r}.")
        return REGRESSION[name](num_outputs)
    if name not in CLASSIFICATION:
        got = f"{name!r}, which is for regression" if name in REGRESSION else repr(name)
        raise ValueError(f"a likelihood for classification is one of {', '.join(CLASSIFICATION)}, got {got}.")
    return CLASSIFICATION[name](num_classes)
