"""Two classes by expectation propagation, against quadrature, importance sampling, and data that are hard."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.special import gammaln, log_expit, logsumexp
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from orbitgp import InvariantGPClassifier
from orbitgp.inference import dense_posterior
from orbitgp.inference.dense_posterior import Solution, missing_nats, solve
from orbitgp.likelihoods import Bernoulli
from orbitgp.likelihoods.tilted import Tilted
from orbitgp.orbits import Permutation

LIKELIHOOD = Bernoulli()


def gram(x: np.ndarray, variance: float, lengthscale: float = 1.0, swap: bool = False) -> np.ndarray:
    """RBF, or its mean over both orders of two columns."""
    orders = (x, x[:, ::-1]) if swap else (x,)
    distances = [[((a[:, None] - b[None]) ** 2).sum(-1) for a in orders] for b in orders]
    return np.mean(variance * np.exp(-0.5 * np.array(distances) / lengthscale**2), (0, 1))


def solved(covariance: np.ndarray, y: np.ndarray, by_bound: bool = False, mean: float | None = None) -> Solution:
    means = torch.full((len(y), 1), mean or 0.0, dtype=torch.float64)
    targets = torch.as_tensor(y)[:, None]
    return solve(torch.as_tensor(covariance), means, LIKELIHOOD, targets, learns_mean=mean is None, by_bound=by_bound)


def importance_sampling(
    covariance: np.ndarray, y: np.ndarray, mean: float, sites: Tensor, draws: int = 100_000
) -> float:
    """The log evidence, by weighted draws of a law with heavier tails than the posterior at these sites.

    Sites that are wrong would make the weights unequal, not the result wrong.
    """
    rng, size, df = np.random.default_rng(0), len(y), 30.0
    nu, tau = sites[:, 0].numpy(), sites[:, 1].numpy()
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 1e-9 * values.max()))  # f = mean + root z
    inverse = np.linalg.inv(np.eye(size) + root.T @ (tau[:, None] * root))
    z, lower = inverse @ (root.T @ (nu - tau * mean)), np.linalg.cholesky(1.05 * inverse)
    noise = rng.normal(size=(draws, size)) / np.sqrt(rng.chisquare(df, draws) / df)[:, None]
    at = z + noise @ lower.T
    proposal = (
        gammaln((df + size) / 2) - gammaln(df / 2) - 0.5 * size * np.log(df * np.pi) - np.log(lower.diagonal()).sum()
    ) - 0.5 * (df + size) * np.log1p((noise**2).sum(1) / df)
    prior = -0.5 * (at**2).sum(1) - 0.5 * size * np.log(2 * np.pi)
    weights = prior + log_expit(y * (mean + at @ root.T)).sum(1) - proposal
    assert np.exp(2 * logsumexp(weights) - logsumexp(2 * weights)) > 50  # as good as so many draws of the posterior
    return float(logsumexp(weights) - np.log(draws))


def test_one_datum_is_exact() -> None:
    """log of the integral of N(f; 1, v) sigma(-f)."""
    for variance in (0.5, 30.0, 1e4):
        f = np.linspace(1 - 12 * np.sqrt(variance), 1 + 12 * np.sqrt(variance), 400_001)
        law = np.exp(log_expit(-f) - 0.5 * (f - 1) ** 2 / variance) / np.sqrt(2 * np.pi * variance)
        found = solved(np.array([[variance]]), np.array([-1.0]), mean=1.0).log_evidence
        assert found == pytest.approx(np.log(trapezoid(law, f)), abs=1e-5)


def test_three_data_are_closer_than_their_bound() -> None:
    """Against quadrature in three dimensions."""
    x, y = np.array([[0.0, 0.0], [0.5, 0.0], [1.5, 0.0]]), np.array([1.0, 1.0, -1.0])
    covariance = gram(x, 9.0)
    grid = np.linspace(-18, 18, 81)
    f = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    prior = -0.5 * ((f @ np.linalg.inv(covariance)) * f).sum(1) - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    truth = logsumexp(prior + log_expit(y * f).sum(1)) + 3 * np.log(grid[1] - grid[0])
    found, bound = (solved(covariance, y, by_bound, mean=0.0).log_evidence for by_bound in (False, True))
    assert found == pytest.approx(truth, abs=0.02)
    assert truth - bound > 0.2


def waves(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes that a function separates, which changes a little if the columns swap places."""
    rng = np.random.default_rng([32, seed])
    x, share = rng.normal(size=(rows, 2)), rng.uniform(0.25, 0.55)
    even, odd = (np.sin(1.2 * (x[:, 0] + sign * x[:, 1]) + rng.uniform(0, 6)) for sign in (1, -1))
    f = (1 - share) * even + share * odd
    return x, np.where(f > np.median(f), 1.0, -1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_the_evidence_leans_to_no_orbit() -> None:
    """Against importance sampling at the learned parameters. The bound leans to the swap, which is less certain of its
    f."""
    x, y = waves(0, 60)
    errors, slacks = [], []
    for swap in (False, True):
        orbit = Permutation.swap(0, 1) if swap else None
        model = InvariantGPClassifier(orbit, inference="exact", random_state=0).fit(x, (y > 0).astype(int))
        variance, lengthscale = model.kernel_.outputscale.item(), model.kernel_.base_kernel.lengthscale.item()
        covariance, mean = gram(x, variance, lengthscale, swap), model.model_.prior_mean.bias.item()
        found = solved(covariance, y, mean=mean)
        assert found.local is not None
        truth = importance_sampling(covariance, y, mean, found.local)
        low, high = model.evidence_.interval
        assert low - 0.02 < truth < high + 0.02  # the error of the draws
        errors.append(float(model.evidence_) - truth)
        slacks.append(solved(covariance, y, by_bound=True, mean=mean).log_evidence - truth)
    assert abs(errors[1] - errors[0]) < 0.5  # 0.2 to 0.4 by 300,000 draws; the bound leans by several nats
    assert slacks[1] - slacks[0] > 1.0


HARD = {
    "one of a class": (np.linspace(-1, 1, 12)[:, None], np.where(np.arange(12) == 4, 1.0, -1.0)),
    "duplicates of both classes": (np.repeat(np.linspace(-1, 1, 6), 2)[:, None], np.tile([1.0, -1.0], 6)),
    "one class": (np.linspace(-1, 1, 8)[:, None], np.ones(8)),
    "told apart": (np.concatenate([np.linspace(-6, -5, 8), np.linspace(5, 6, 8)])[:, None], np.repeat([1.0, -1.0], 8)),
}


@pytest.mark.parametrize("variance", [1e-3, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("name", HARD)
def test_it_comes_to_rest(name: str, variance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, one = [], dense_posterior.posterior
    monkeypatch.setattr(dense_posterior, "posterior", lambda *args: turns.append(1) or one(*args))
    x, y = HARD[name]
    covariance = gram(x, variance, lengthscale=2.0)
    found = solved(covariance, y, mean=0.0)
    assert len(turns) < 50
    assert found.local is not None
    assert bool(found.local.isfinite().all())
    if variance < 1e8:
        error = importance_sampling(covariance, y, 0.0, found.local) - found.log_evidence
        estimate = missing_nats(LIKELIHOOD, torch.as_tensor(y)[:, None], found.local, found.system)
        assert error == pytest.approx(estimate, rel=0.5, abs=0.03)
    turns.clear()
    again = _again(covariance, y, found.local)
    assert again == pytest.approx(found.log_evidence, abs=1e-4)
    assert len(turns) == 1


@pytest.mark.parametrize("prior", [9.0, 1e-3])
def test_what_is_missing_is_the_sum_over_pairs_of_skewnesses_and_correlations(prior: float) -> None:
    """1/12 sum over m != n of s_m s_n r_mn^3: cavities and correlations by dense algebra, and skewnesses on a grid."""
    x, y = HARD["one of a class"]
    covariance = gram(x, prior)
    found = solved(covariance, y, mean=0.0)
    assert found.local is not None
    nu, tau = found.local[:, 0].numpy(), found.local[:, 1].numpy()
    posterior = covariance - covariance @ np.linalg.solve(covariance + np.diag(1 / tau), covariance)
    own = posterior.diagonal()
    correlation = posterior / np.sqrt(np.outer(own, own))
    variance = 1 / (1 / own - tau)
    mean = variance * (posterior @ nu / own - nu)
    grid = mean + np.sqrt(variance) * np.linspace(-9, 9, 20_001)[:, None]
    density = np.exp(log_expit(y * grid) - 0.5 * (grid - mean) ** 2 / variance)
    density /= density.sum(0)
    centred = grid - (density * grid).sum(0)
    skewness = (density * centred**3).sum(0) / (density * centred**2).sum(0) ** 1.5
    pairs = [skewness[m] * skewness[n] * correlation[m, n] ** 3 for m in range(12) for n in range(12) if m != n]
    estimate = missing_nats(LIKELIHOOD, torch.as_tensor(y)[:, None], found.local, found.system)
    assert estimate == pytest.approx(abs(sum(pairs)) / 12, rel=0.01)
    assert (estimate > 1e-3) == (prior == 9.0)


def test_a_divergence_is_that_of_two_normal_laws() -> None:
    cavities = dense_posterior.Cavities(torch.tensor([[0.5], [-2.0]]).double(), torch.tensor([[3.0], [0.2]]).double())
    tilted = Tilted(*(torch.tensor(row).double()[:, None] for row in ([0.0, 0.0], [0.4, -0.3], [0.2, 1.5])))
    sites = torch.tensor([[0.3, 0.7], [-1.0, 2.0]]).double()
    mean, variance, (nu, tau) = cavities.mean[:, 0], cavities.variance[:, 0], sites.T
    found = Normal(mean + variance * tilted.slope[:, 0], (variance - variance**2 * tilted.curvature[:, 0]).sqrt())
    marginal = 1 / (1 / variance + tau)
    expected = kl_divergence(found, Normal(marginal * (mean / variance + nu), marginal.sqrt())).sum()
    assert cavities.divergence(tilted, sites) == pytest.approx(float(expected))


def _again(covariance: np.ndarray, y: np.ndarray, local: Tensor) -> float:
    means = torch.zeros(len(y), 1, dtype=torch.float64)
    targets = torch.as_tensor(y)[:, None]
    return solve(torch.as_tensor(covariance), means, LIKELIHOOD, targets, local, learns_mean=False).log_evidence


@pytest.mark.parametrize("name", HARD)
def test_a_mean_that_is_learned_stays_finite(name: str) -> None:
    x, y = HARD[name]
    for variance in (1.0, 1e4):
        found = solved(gram(x, variance), y)
        assert found.bias is not None
        assert bool(found.bias.isfinite().all())
        assert found.log_evidence <= 1e-6


def test_every_site_has_a_precision_though_one_distribution_is_wider_than_its_cavity() -> None:
    """As under a likelihood that is not log-concave: a site cannot be wider than everything."""
    cavities = dense_posterior.Cavities(*torch.ones(2, 3, 1, dtype=torch.float64))
    log_z, slope, curvature = [0.0, 0.0, 0.0], [0.2, 0.1, -0.1], [0.5, -0.4, 0.0]
    tilted = Tilted(*(torch.tensor(row, dtype=torch.float64)[:, None] for row in (log_z, slope, curvature)))
    nu, tau = cavities.sites(tilted).T
    assert (tau > 0).all()
    assert float(tau[0]) == pytest.approx(0.5 / (1 - 0.5))  # the variance becomes v - v^2 c
    # The mean moves by v times the slope, whatever the precision.
    torch.testing.assert_close((nu + 1) / (tau + 1), torch.tensor([1.2, 1.1, 0.9], dtype=torch.float64))
