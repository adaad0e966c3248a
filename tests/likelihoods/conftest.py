"""Every likelihood, with targets to go with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from orbitgp.likelihoods import Classification, Likelihood, NegativeBinomial, make_likelihood
from tests.likelihoods.own import make_classes

MAKERS: dict[str, Callable[[], Likelihood]] = {
    "bernoulli": lambda: make_likelihood("bernoulli", num_classes=2),
    "stick-breaking": lambda: make_classes("stick-breaking", 4),
    "dirichlet": lambda: make_likelihood("dirichlet", num_classes=4),
    "indicators": lambda: make_likelihood("gaussian", num_classes=4),
    "gaussian": lambda: make_likelihood("gaussian", num_outputs=2),
    "student-t": lambda: make_likelihood("student-t", num_outputs=2),
    "negative-binomial": lambda: make_likelihood("negative-binomial"),
}


@pytest.fixture(params=MAKERS)
def likelihood(request: pytest.FixtureRequest) -> Likelihood:
    return MAKERS[request.param]()


@pytest.fixture
def targets(likelihood: Likelihood) -> Callable[[int], Tensor]:
    def draw(rows: int) -> Tensor:
        if isinstance(likelihood, Classification):
            return likelihood.encode(torch.randint(likelihood.num_classes, (rows,)))
        if isinstance(likelihood, NegativeBinomial):
            return torch.poisson(torch.rand(rows, 1, dtype=torch.float64).mul(9))
        return torch.randn(rows, likelihood.num_latents, dtype=torch.float64)

    return draw
