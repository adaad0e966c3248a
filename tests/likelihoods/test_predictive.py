"""Class probabilities against integrals that share nothing with the code: the Gumbel trick, Monte Carlo, quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid

from orbitgp.likelihoods import Categorical, make_likelihood
from orbitgp.likelihoods.classification import normal_nodes
from tests.likelihoods.own import make_classes

NAMES = ["stick-breaking", "gaussian", "dirichlet"]


def softmax_by_gumbel(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E softmax(f)_k = P(argmax_j f_j + G_j = k), an integral over the winner: exact for independent f, to 1e-6."""
    z = np.linspace(-8, 8, 401)
    weights = np.exp(-0.5 * z**2)
    weights /= weights.sum()
    std = np.sqrt(variance)
    t = np.linspace((mean - 8 * std).min() - 5, (mean + 8 * std).max() + 30, 601)
    d = t[:, None, None] - (mean[None, :, None] + std[None, :, None] * z)
    cdf = np.maximum((np.exp(-np.exp(-d)) * weights).sum(-1), 1e-300)
    pdf = (np.exp(-d - np.exp(-d)) * weights).sum(-1)
    return trapezoid(pdf / cdf * np.exp(np.log(cdf).sum(1, keepdims=True)), t, axis=0)


@pytest.mark.parametrize(("spread", "variance"), [(1.0, 1.0), (3.0, 0.3), (3.0, 5.0)])
def test_softmax_probabilities(spread: float, variance: float) -> None:
    rng = np.random.default_rng(0)
    mean, var = spread * rng.normal(size=(3, 10)), variance * rng.uniform(0.3, 1.5, size=(3, 10))
    ours = make_likelihood("dirichlet", num_classes=10).predictive(torch.as_tensor(mean), torch.as_tensor(var)).probs
    truth = np.stack([softmax_by_gumbel(m, v) for m, v in zip(mean, var, strict=True)])
    np.testing.assert_allclose(truth.sum(1), 1.0, atol=1e-6)
    assert np.abs(ours.numpy() - truth).max() < 3e-3
    # What ignoring the variance would give is much further off.
    plug_in = torch.softmax(torch.as_tensor(mean), -1).numpy()
    assert np.abs(ours.numpy() - truth).max() < 0.3 * np.abs(plug_in - truth).max()


@pytest.mark.parametrize("std", [0.0, 0.3, 3.0, 10.0])
def test_logistic_probabilities(std: float) -> None:
    z = np.linspace(-12, 12, 200_001)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    for mean in (-4.0, 0.0, 0.5, 7.0):
        truth = trapezoid(density / (1 + np.exp(-(mean + std * z))), z)
        inputs = (torch.full((1, 1), v, dtype=torch.float64) for v in (mean, std**2))
        probs = make_likelihood("bernoulli", num_classes=2).predictive(*inputs).probs
        np.testing.assert_allclose(probs.numpy(), [[1 - truth, truth]], atol=1e-8)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gaussian"])
def test_every_law_against_monte_carlo(name: str) -> None:
    likelihood = make_classes(name, 4)
    mean = torch.randn(5, likelihood.num_latents, dtype=torch.float64)
    variance = 2 * torch.rand_like(mean)
    draws = 100_000
    values = likelihood.log_probs(mean + variance.sqrt() * torch.randn(draws, *mean.shape, dtype=torch.float64)).exp()
    error = values.std(0) / draws**0.5
    # 1e-3 for our own Sobol' points
    assert bool(((likelihood.predict_proba(mean, variance) - values.mean(0)).abs() < 4 * error + 1e-3).all())


@pytest.mark.parametrize("name", [*NAMES, "bernoulli"])
def test_rows_are_independent_deterministic_and_sum_to_one(name: str) -> None:
    likelihood = make_classes(name, 2 if name == "bernoulli" else 6)
    mean = 3 * torch.randn(700, likelihood.num_latents, dtype=torch.float64)
    variance = torch.rand_like(mean)
    law = likelihood.predictive(mean, variance)
    assert isinstance(law, Categorical)
    again = likelihood.predictive(mean, variance)
    assert isinstance(again, Categorical)
    assert torch.equal(law.probs, again.probs)
    alone = torch.cat([likelihood.predict_proba(mean[n : n + 1], variance[n : n + 1]) for n in (0, 350, 699)])
    torch.testing.assert_close(law.probs[[0, 350, 699]], alone, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(law.probs.sum(1), torch.ones(700, dtype=torch.float64))
    labels = torch.randint(law.probs.shape[1], (700,))
    torch.testing.assert_close(law.log_prob(labels), law.probs[torch.arange(700), labels].log())


@pytest.mark.parametrize("name", [*NAMES, "bernoulli"])
def test_no_variance_is_the_law_at_the_mean_and_much_variance_is_doubt(name: str) -> None:
    likelihood = make_classes(name, 2 if name == "bernoulli" else 5)
    mean = 4 * torch.randn(8, likelihood.num_latents, dtype=torch.float64)
    sure, doubtful = (likelihood.predict_proba(mean, torch.full_like(mean, v)) for v in (0.0, 400.0))
    torch.testing.assert_close(sure, likelihood.log_probs(mean).exp().detach())
    assert float(doubtful.max()) < 0.75
    assert float(sure.max(1).values.mean()) > float(doubtful.max(1).values.mean())


def test_extremes_stay_finite() -> None:
    for name in NAMES:
        likelihood = make_classes(name, 3)
        mean = torch.tensor([[1e4], [-1e4]], dtype=torch.float64) * torch.linspace(0.5, 1.0, likelihood.num_latents)
        law = likelihood.predictive(mean, torch.ones_like(mean))
        assert isinstance(law, Categorical)
        assert bool(torch.isfinite(law.probs).all())
        for k in range(3):
            assert bool(torch.isfinite(law.log_prob(torch.full((2,), k))).all())


def test_nodes_are_the_same_in_every_process() -> None:
    first, second = (normal_nodes.__wrapped__(5)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_no_rows() -> None:
    law = make_likelihood("dirichlet", num_classes=3).predictive(torch.zeros(0, 3), torch.zeros(0, 3))
    assert isinstance(law, Categorical)
    assert law.probs.shape == (0, 3)
