"""Counts: the negative binomial against scipy, quadrature and brute force, and fits of generated counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad, trapezoid
from torch import Tensor

from orbitgp import InvariantGPRegressor
from orbitgp.inference.dense_posterior import missing_nats, solve
from orbitgp.likelihoods import CountMixture, NegativeBinomial
from orbitgp.likelihoods.base import Moments


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def likelihood(overdispersion: float = 0.4, unit: float = 3.0) -> NegativeBinomial:
    made = NegativeBinomial(overdispersion=overdispersion)
    made.unit.fill_(unit)
    return made


def log_pmf(y: float, f: np.ndarray | float, overdispersion: float = 0.4, unit: float = 3.0) -> np.ndarray:
    """By scipy, whose parameters are r and p with the mean r (1 - p) / p."""
    r, mean = 1 / overdispersion, unit * np.exp(f)
    return stats.nbinom.logpmf(y, r, r / (r + mean))


@pytest.mark.parametrize("overdispersion", [0.001, 0.4, 5.0])
def test_density_and_bound(overdispersion: float) -> None:
    """The bound touches the density where x = f + log(unit / r) is c or -c, and lies below it elsewhere."""
    made, f, y = likelihood(overdispersion), column(-3.0, -0.5, 1.0, 4.0), column(0.0, 2.0, 40.0, 7.0)
    expected = [log_pmf(*pair, overdispersion) for pair in zip(y[:, 0].tolist(), f[:, 0].tolist(), strict=True)]
    np.testing.assert_allclose(made.log_prob(y, f).detach(), expected, rtol=1e-9)
    c = made.local(y, Moments(f, f.square()))
    for other, touches in ((f, True), (f + 0.7, False), (f - 2.0, False)):
        gap = made.log_prob(y, other) - made.quadratic(y, c).expectation(Moments(other, other.square()))
        assert (gap.abs() < 1e-9).all() if touches else (gap > 0).all()


@pytest.mark.parametrize("variance", [1e-4, 0.3, 4.0, 60.0])
def test_tilted_laws(variance: float) -> None:
    for y in (0, 1, 30, 3000):
        for mean in (-5.0, 0.0, 3.0):
            found = likelihood().tilted(column(y), column(mean), column(variance))
            # The mode is between prior and data; a fine grid around it.
            grid = mean + np.sqrt(variance) * np.linspace(-10, 10, 4001)
            grid = np.union1d(grid, np.linspace(mean - 40 * variance, mean + min(3000 * variance, 60.0), 4001))
            best = grid[np.argmax(log_pmf(y, grid) + stats.norm.logpdf(grid, mean, np.sqrt(variance)))]
            f = best + np.sqrt(variance) * np.linspace(-10, 10, 40_001)
            logs = log_pmf(y, f) + stats.norm.logpdf(f, mean, np.sqrt(variance))
            weights = np.exp(logs - logs.max())
            log_z = np.log(trapezoid(weights, f)) + logs.max()
            weights /= weights.sum()
            first = weights @ f
            assert found.log_z.item() == pytest.approx(log_z, abs=1e-8)
            assert mean + variance * found.slope.item() == pytest.approx(first, abs=1e-6)
            left = variance - variance**2 * found.curvature.item()
            assert left == pytest.approx(weights @ (f - first) ** 2, rel=1e-4)


def test_evidence_of_three_counts() -> None:
    """Expectation propagation, and its gradient in the overdispersion, against sums over a grid of three dimensions."""
    covariance = np.array([[2.0, 1.2, 0.3], [1.2, 2.0, 1.0], [0.3, 1.0, 1.5]])
    y = np.array([0, 3, 12])
    axis = np.linspace(-8, 8, 81)
    f = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    prior = stats.multivariate_normal.logpdf(f, np.zeros(3), covariance) + 3 * np.log(axis[1] - axis[0])

    def truth(overdispersion: float) -> float:
        first, second, third = (log_pmf(n, axis, overdispersion) for n in y)
        return float(np.logaddexp.reduce(prior + (first[:, None, None] + second[:, None] + third).ravel()))

    def propagated(overdispersion: float) -> float:
        made, targets = likelihood(overdispersion), column(*y)
        found = solve(torch.as_tensor(covariance), torch.zeros_like(targets), made, targets, learns_mean=False)
        assert found.local is not None
        slack = missing_nats(made, targets, found.local, found.system)
        assert found.log_evidence == pytest.approx(truth(overdispersion), abs=2 * slack + 0.002)
        bound = solve(
            torch.as_tensor(covariance), torch.zeros_like(targets), made, targets, learns_mean=False, by_bound=True
        )
        assert bound.log_evidence < truth(overdispersion)
        return found.log_evidence

    for overdispersion in (0.05, 0.4, 3.0):
        rises = propagated(1.05 * overdispersion) - propagated(overdispersion)
        assert rises == pytest.approx(truth(1.05 * overdispersion) - truth(overdispersion), abs=2e-3)
    targets, made = column(*y), likelihood()
    cavity = column(0.1, 0.5, 1.0), column(0.5, 1.0, 0.3)
    (slope,) = torch.autograd.grad(made.tilted(targets, *cavity).log_z.sum(), made.log_overdispersion)
    ends = [likelihood(0.4 * step).tilted(targets, *cavity).log_z.sum().item() for step in (0.999, 1.001)]
    assert slope.item() == pytest.approx((ends[1] - ends[0]) / 0.002, rel=1e-3)


def test_predictive_law() -> None:
    mean, variance = column(-2.0, 0.5, 4.0), column(0.0, 0.3, 1.0)
    law, r = CountMixture(mean, variance, torch.tensor(2.5)), 2.5
    for row, (m, v) in enumerate(zip(mean[:, 0].tolist(), variance[:, 0].tolist(), strict=True)):
        counts = np.arange(20_000)

        def pmf(n: np.ndarray, m: float = m, v: float = v) -> np.ndarray:
            z, w = np.polynomial.hermite_e.hermegauss(60)
            p = r / (r + np.exp(m + np.sqrt(v) * z))
            return stats.nbinom.pmf(n[:, None], r, p) @ (w / w.sum())

        probs = pmf(counts)
        first = probs @ counts
        assert law.mean[row].item() == pytest.approx(first, rel=1e-3)
        assert law.std[row].item() == pytest.approx(np.sqrt(probs @ (counts - first) ** 2), rel=0.02)
        total = probs.cumsum()
        for level in (0.05, 0.5, 0.95):
            assert law.quantile(level)[row].item() == np.searchsorted(total, level)
        assert law.cdf(torch.full_like(mean, 3.0))[row].item() == pytest.approx(total[3], abs=1e-6)
        assert law.log_prob(torch.full_like(mean, 3.0))[row].item() == pytest.approx(np.log(probs[3]), abs=1e-6)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([law.sample(generator) for _ in range(1000)])
    assert ((drawn.mean(0) - law.mean).abs() < 4 * law.std / 1000**0.5).all()
    assert (drawn == drawn.round()).all()


def counts(rows: int, r: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 6, (rows, 1))
    return x, rng.poisson(np.exp(1 + np.sin(2 * x[:, 0])) * rng.gamma(r, 1 / r, rows))


@pytest.mark.usefixtures("one_start")
@pytest.mark.parametrize("r", [2.0, 1e6], ids=["overdispersed", "poisson"])
def test_intervals_cover(r: float) -> None:
    """Intervals of counts end on counts, so they hold 90 % or somewhat more, and quiet and busy inputs alike."""
    model = InvariantGPRegressor(likelihood="negative-binomial", random_state=0).fit(*counts(70, r, 0))
    x, y = counts(1000, r, 1)
    low, high = model.predict_quantiles(x, [0.05, 0.95]).T
    inside, busy = (low <= y) & (y <= high), np.sin(2 * x[:, 0]) > 0
    assert 0.88 < inside[busy].mean() < 0.98
    assert 0.88 < inside[~busy].mean() < 0.995
    assert 1 / model.likelihood_.r.item() == pytest.approx(1 / r, abs=0.25)
    mean, std = model.predict(x[:5], return_std=True)
    assert (std**2 > mean).all()
    drawn = model.sample_y(x[:5], 50)
    assert (drawn == np.abs(drawn).round()).all()


@pytest.mark.usefixtures("one_start")
def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    x, y = counts(40, 2.0, 0)
    for settings in ({"max_steps": 3}, {"num_inducing": 15, "max_steps": 3}):
        model = InvariantGPRegressor(likelihood="negative-binomial", random_state=0, **settings).fit(x, 1000 * y)
        model.save(tmp_path / "counts.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "counts.safetensors")
        np.testing.assert_allclose(loaded.predict(x), model.predict(x))


@pytest.mark.usefixtures("one_start")
def test_large_equal_counts() -> None:
    x, y = counts(30, 2.0, 0)
    mean, std = (
        InvariantGPRegressor(likelihood="negative-binomial", random_state=0).fit(x, 0 * y + 100_000).predict(x, True)
    )
    np.testing.assert_allclose(mean, 100_000, rtol=0.01)
    assert (std < 5000).all()


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (lambda y: y - 2, "counts are 0, 1, 2"),
        (lambda y: y + 0.5, "counts are 0, 1, 2"),
        (lambda y: 0 * y, "not all zero"),
        (lambda y: np.stack([y, y], 1), "fit counts one by one"),
    ],
)
def test_bad_counts(targets: Callable[..., Any], said: str) -> None:
    x, y = counts(20, 2.0, 0)
    with pytest.raises(ValueError, match=said):
        InvariantGPRegressor(likelihood="negative-binomial").fit(x, targets(y))


def test_quadrature_is_that_of_scipy() -> None:
    """One cell of the table of tilted laws by another integrator."""
    value = quad(lambda f: np.exp(log_pmf(30, f) + stats.norm.logpdf(f, 0, 2)), -20, 20, points=[2.3], limit=200)[0]
    assert likelihood().tilted(column(30.0), column(0.0), column(4.0)).log_z.item() == pytest.approx(
        np.log(value), abs=1e-7
    )
