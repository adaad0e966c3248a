"""A likelihood of one's own, twice: noise by two functions, and anything else by four."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch import Tensor

from orbitgp.likelihoods import Categorical, Likelihood, Moments, Noise, Quadratic
from orbitgp.likelihoods.quadrature import normal_average
from tests.likelihoods.own import gaussian_moments


class HyperbolicSecant(Noise):
    """g(r) = -log(pi cosh r), so w(c) = tanh(c) / c."""

    def log_density(self, r: Tensor) -> Tensor:
        return -math.log(math.pi / 2) - torch.logaddexp(r, -r)

    def precision(self, c: Tensor) -> Tensor:
        return torch.where(c.abs() < 1e-4, 1.0, torch.tanh(c) / c)


class Probit(Likelihood):
    """p(y | f) = Phi(y f), y = -1 or +1. Its curvature is at least -1: a parabola with lam = 1 touches at a, best at E f."""

    num_latents, num_locals = 1, 1

    def local(self, y: Tensor, moments: Moments) -> Tensor:
        return moments.mean

    def quadratic(self, y: Tensor, local: Tensor | None) -> Quadratic:
        assert local is not None
        value = torch.special.log_ndtr(y * local)
        slope = y * torch.exp(-0.5 * (local.square() + math.log(2 * math.pi)) - value)
        # value + slope (f - a) - 1/2 (f - a)^2, sorted by powers of f
        const = value - slope * local - 0.5 * local.square()
        return Quadratic(const[:, 0], slope + local, torch.ones_like(local))

    def log_prob(self, y: Tensor, f: Tensor) -> Tensor:
        return torch.special.log_ndtr(y * f)[..., 0]

    def predictive(self, mean: Tensor, variance: Tensor) -> Categorical:
        p = normal_average(torch.special.ndtr, mean, variance)
        return Categorical(torch.cat([1 - p, p], -1))


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
    law = HyperbolicSecant().predictive(torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[0.0]], dtype=torch.float64))
    truth = scipy.stats.hypsecant(loc=1.0)
    for level in (0.1, 0.5, 0.99):
        assert law.quantile(level).item() == pytest.approx(truth.ppf(level), abs=1e-4)
    assert law.std.item() == pytest.approx(math.pi / 2, rel=1e-4)
    assert law.log_prob(torch.tensor([[2.5]], dtype=torch.float64)).item() == pytest.approx(truth.logpdf(2.5), abs=1e-4)


def test_probit_probability_has_a_closed_form() -> None:
    law = Probit().predictive(torch.tensor([[0.7]], dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64))
    assert law.probs[0, 1].item() == pytest.approx(scipy.stats.norm.cdf(0.7 / math.sqrt(3.0)), abs=1e-9)


def test_what_is_missing_is_named() -> None:
    class Empty(Likelihood):
        num_latents = 1

    one = torch.ones(1, 1)
    for call in (lambda e: e.quadratic(one, None), lambda e: e.log_prob(one, one), lambda e: e.predictive(one, one)):
        with pytest.raises(NotImplementedError, match="Empty must define"):
            call(Empty())
    with pytest.raises(NotImplementedError, match="log_density"):
        Noise().log_prob(one, one)
