"""A likelihood of one's own, twice: noise by two functions, and anything else by four."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from orbitgp import InvariantGPClassifier
from orbitgp.inference.dense_posterior import solve
from orbitgp.likelihoods import Classification, Likelihood, Moments, Noise, Quadratic
from orbitgp.likelihoods.classification import normal_average
from orbitgp.likelihoods.tilted import Tilted, tilted_by_probits
from tests.likelihoods.own import gaussian_moments


class HyperbolicSecant(Noise):
    """g(r) = -log(pi cosh r), so w(c) = tanh(c) / c."""

    def log_density(self, r: Tensor) -> Tensor:
        return -math.log(math.pi / 2) - torch.logaddexp(r, -r)

    def precision(self, c: Tensor) -> Tensor:
        return torch.where(c.abs() < 1e-4, 1.0, torch.tanh(c) / c)


class Probit(Classification):
    """p(y | f) = Phi(y f), y = -1 or +1. Its curvature is at least -1: a parabola with lam = 1 touches at a, best at E
    f."""

    num_locals = 1

    def __init__(self) -> None:
        super().__init__(num_classes=2, num_latents=1)

    def encode(self, labels: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        return (2 * labels[:, None] - 1).to(dtype)

    def local(self, y: Tensor, moments: Moments) -> Tensor:
        return moments.mean

    def quadratic(self, y: Tensor, local: Tensor | None) -> Quadratic:
        assert local is not None
        value = torch.special.log_ndtr(y * local)
        slope = y * torch.exp(-0.5 * (local.square() + math.log(2 * math.pi)) - value)
        # value + slope (f - a) - 1/2 (f - a)^2, sorted by powers of f
        const = value - slope * local - 0.5 * local.square()
        return Quadratic(const[:, 0], slope + local, torch.ones_like(local))

    def log_probs(self, f: Tensor) -> Tensor:
        return torch.special.log_ndtr(torch.cat([-f, f], -1))

    def log_prob(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.special.log_ndtr(y * f)[..., 0]

    def tilted(self, y: Tensor, mean: Tensor, variance: Tensor) -> Tilted:
        one = mean.new_ones(1)
        return tilted_by_probits(y, mean, variance, one, one)


@pytest.mark.parametrize("likelihood", [HyperbolicSecant(), Probit()], ids=["noise", "from scratch"])
def test_it_is_a_bound_at_its_best(likelihood: Likelihood) -> None:
    mean = torch.linspace(-3, 3, 40, dtype=torch.float64)[:, None]
    y = torch.where(torch.arange(40)[:, None] % 3 == 0, 1.0, -1.0).double()
    for variance in (0.0, 0.1, 2.0):
        moments = gaussian_moments(mean, torch.full_like(mean, variance))
        local = likelihood.local(y, moments)
        assert local is not None
        bound = likelihood.quadratic(y, local).expectation(moments)
        exact = normal_average(lambda f: likelihood.log_prob(y, f), mean, torch.full_like(mean, variance))
        assert float((bound - exact).max()) < 1e-9
        if variance == 0.0:
            assert float((exact - bound).max()) < 1e-7
        for step in (-0.1, 0.1):
            assert bool((likelihood.quadratic(y, local + step).expectation(moments) <= bound + 1e-12).all())


def test_its_predictive_comes_for_free() -> None:
    law = HyperbolicSecant().predictive(
        torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[0.0]], dtype=torch.float64)
    )
    truth = scipy.stats.hypsecant(loc=1.0)
    for level in (0.1, 0.5, 0.99):
        assert law.quantile(level).item() == pytest.approx(truth.ppf(level), abs=1e-4)
    assert law.std.item() == pytest.approx(math.pi / 2, rel=1e-4)
    assert law.log_prob(torch.tensor([[2.5]], dtype=torch.float64)).item() == pytest.approx(truth.logpdf(2.5), abs=1e-4)


def test_probit_probability_has_a_closed_form() -> None:
    law = Probit().predictive(torch.tensor([[0.7]], dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64))
    assert law.probs[0, 1].item() == pytest.approx(scipy.stats.norm.cdf(0.7 / math.sqrt(3.0)), abs=1e-9)


def test_probit_evidence_is_a_probability_of_normal_variables() -> None:
    """The signs of f + e are those of y, with normal noise e of variance one."""
    x = torch.linspace(0, 2, 5, dtype=torch.float64)
    covariance, y = (
        4 * torch.exp(-(x[:, None] - x).square()),
        torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0], dtype=torch.float64),
    )
    found = solve(covariance, torch.zeros(5, 1, dtype=torch.float64), Probit(), y[:, None], learns_mean=False)
    flipped = y[:, None] * (covariance + torch.eye(5)) * y
    truth = scipy.stats.multivariate_normal.cdf(np.zeros(5), cov=flipped.numpy(), abseps=1e-8, releps=1e-8)
    assert found.log_evidence == pytest.approx(math.log(truth), abs=0.01)


@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_a_classifier_takes_it(inference: Literal["exact", "sparse"]) -> None:
    x = np.linspace(-2, 2, 40)[:, None]
    labels = np.where(np.sin(2 * x[:, 0]) > 0, "up", "down")
    model = InvariantGPClassifier(likelihood=Probit(), inference=inference, max_steps=30, random_state=0).fit(x, labels)
    assert model.score(x, labels) > 0.9
    assert model.evidence_.is_bound == (inference == "sparse")


def test_what_is_missing_is_named() -> None:
    class Empty(Likelihood):
        num_latents = 1

    one = torch.ones(1, 1)
    for call in (
        lambda e: e.quadratic(one, None),
        lambda e: e.log_prob(one, one),
        lambda e: e.predictive(one, one),
        lambda e: e.tilted(one, one, one),
    ):
        with pytest.raises(NotImplementedError, match="Empty must define"):
            call(Empty())
    with pytest.raises(NotImplementedError, match="log_density"):
        Noise().log_prob(one, one)
