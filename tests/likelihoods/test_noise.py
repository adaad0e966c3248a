"""Regression noise: densities against scipy, robustness, and predictive laws against numerical integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from orbitgp.likelihoods import Gaussian, Noise, StudentT
from tests.likelihoods.own import gaussian_moments

CASES = {
    "gaussian": (lambda: Gaussian(noise=0.25), scipy.stats.norm(scale=0.5)),
    "student-t": (lambda: StudentT(scale=0.5, df=4.0), scipy.stats.t(4.0, scale=0.5)),
    "student-t, heavy": (lambda: StudentT(scale=0.5, df=2.2), scipy.stats.t(2.2, scale=0.5)),
    "student-t, near normal": (lambda: StudentT(scale=0.5, df=1e4), scipy.stats.t(1e4, scale=0.5)),
    "student-t, small": (lambda: StudentT(scale=1e-4, df=4.0), scipy.stats.t(4.0, scale=1e-4)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Noise, scipy.stats.rv_continuous]:
    make, law = CASES[request.param]
    return make(), law


def test_density(case: tuple[Noise, scipy.stats.rv_continuous]) -> None:
    likelihood, law = case
    r = np.linspace(-5, 5, 101)
    ours = likelihood.log_prob(torch.zeros(101, 1, dtype=torch.float64), torch.as_tensor(r)[:, None]).detach()
    np.testing.assert_allclose(ours.numpy(), law.logpdf(r), rtol=1e-9)


def test_mixture_of_scales_is_the_noise(case: tuple[Noise, scipy.stats.rv_continuous]) -> None:
    likelihood, law = case
    weights, tau = (t.numpy() for t in likelihood.scale_mixture())
    assert weights.sum() == pytest.approx(1.0)
    r = law.ppf([0.5001, 0.6, 0.9, 0.99, 0.9999])
    density = (weights * scipy.stats.norm.pdf(r[:, None], scale=np.sqrt(tau))).sum(1)
    np.testing.assert_allclose(density, law.pdf(r), rtol=1e-3)
    np.testing.assert_allclose(
        (weights * scipy.stats.norm.cdf(r[:, None], scale=np.sqrt(tau))).sum(1), law.cdf(r), atol=1e-5
    )


def test_a_mixture_that_was_found_before_follows_the_parameters() -> None:
    likelihood, other = StudentT(scale=0.5, df=4.0), StudentT(scale=0.5, df=2.2)
    first = likelihood.scale_mixture()
    likelihood.load_state_dict(other.state_dict())
    test_mixture_of_scales_is_the_noise((likelihood, CASES["student-t, heavy"][1]))
    likelihood.load_state_dict(StudentT(scale=0.5, df=4.0).state_dict())
    assert all(torch.equal(a, b) for a, b in zip(first, likelihood.scale_mixture(), strict=True))


@pytest.mark.parametrize("std", [0.0, 0.05, 3.0])
def test_predictive_is_the_convolution(case: tuple[Noise, scipy.stats.rv_continuous], std: float) -> None:
    """Density, cdf, quantiles and std of y = f + e, against integrals over f by scipy."""
    likelihood, law = case
    predictive = likelihood.predictive(
        torch.full((1, 1), 0.7, dtype=torch.float64), torch.full((1, 1), std**2, dtype=torch.float64)
    )
    noise_std = law.std()
    assert predictive.std.item() == pytest.approx(math.hypot(noise_std, std), rel=1e-6)
    assert predictive.mean.item() == 0.7

    def cdf(y: float) -> float:
        if std == 0.0:
            return float(law.cdf(y - 0.7))
        points = sorted(
            {0.7, y, *(0.7 + s * std for s in (-4, -1, 1, 4)), *(y + s * law.ppf(0.9) for s in (-10, -1, 1, 10))}
        )
        low, high = 0.7 - 9 * std, 0.7 + 9 * std
        inside = [p for p in points if low < p < high]
        return scipy.integrate.quad(
            lambda f: law.cdf(y - f) * scipy.stats.norm.pdf(f, 0.7, std), low, high, points=inside, limit=500
        )[0]

    for level in (0.05, 0.5, 0.8, 0.99):
        y = predictive.quantile(level)
        assert cdf(y.item()) == pytest.approx(level, abs=1e-5)
        assert predictive.cdf(y).item() == pytest.approx(level, abs=1e-10)
        h = 1e-4 * float(predictive.std)
        slope = (predictive.cdf(y + h) - predictive.cdf(y - h)).item() / (2 * h)
        assert predictive.log_prob(y).item() == pytest.approx(math.log(slope), abs=1e-4)


def test_quantile_levels_are_checked() -> None:
    law = Gaussian().predictive(torch.zeros(1, 1), torch.ones(1, 1))
    with pytest.raises(ValueError, match="between 0 and 1"):
        law.quantile(1.0)


def test_an_outlier_weighs_little() -> None:
    likelihood = StudentT(scale=0.2)
    y = torch.tensor([[0.1], [10.0]], dtype=torch.float64)
    moments = gaussian_moments(torch.zeros(2, 1, dtype=torch.float64), torch.full((2, 1), 0.01, dtype=torch.float64))
    lam = likelihood.quadratic(y, likelihood.local(y, moments)).lam.detach()
    assert float(lam[1] / lam[0]) < 0.05


@pytest.mark.parametrize("df", [3.0, 1.9e4, 2.1e4, 1e9, 1e16])
def test_student_t_noise_tends_to_the_gaussian_without_rounding(df: float) -> None:
    """A tail that is learned may become as light as it likes: the density stays SciPy's, and its slope in df stays
    small."""
    r = torch.linspace(-2, 2, 9, dtype=torch.float64)
    likelihood = StudentT(1, 0.3, df)
    found = likelihood.log_density(r)
    expected = scipy.stats.t.logpdf(r, df, scale=0.3) if df < 1e8 else scipy.stats.norm.logpdf(r, scale=0.3)
    assert found.detach().numpy() == pytest.approx(expected, abs=1e-6)
    found.sum().backward()
    assert abs(likelihood.log_df.grad) < 1e6 / df


def test_learned_tails_leave_student_t_noise_a_variance() -> None:
    """However heavy its tails become in training, predictions have a standard deviation."""
    likelihood = StudentT(scale=0.5)
    with torch.no_grad():
        likelihood.log_df.fill_(-60.0)
    mean, variance = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    assert likelihood.predictive(mean, variance).std.item() < 20.0
