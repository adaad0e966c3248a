"""The logistic bound against the Polya-Gamma sampler, the logistic function itself and quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from orbitgp.likelihoods import Bernoulli
from orbitgp.likelihoods.base import root_second
from orbitgp.likelihoods.logistic import pg_const, pg_mean
from tests.likelihoods.own import gaussian_moments


@pytest.mark.parametrize("c", [0.0, 0.05, 0.5, 2.0, 7.0, 40.0])
def test_mean_is_that_of_the_polya_gamma_sampler(c: float) -> None:
    polyagamma = pytest.importorskip("polyagamma")
    draws = polyagamma.random_polyagamma(1.0, c, size=200_000, random_state=np.random.default_rng(1))
    error = draws.std() / math.sqrt(draws.size)
    assert abs(float(pg_mean(torch.tensor(c, dtype=torch.float64))) - draws.mean()) < 4 * error


def test_mean_is_smooth_through_the_seam_of_its_two_branches() -> None:
    c = torch.linspace(0.0999, 0.1001, 2001, dtype=torch.float64, requires_grad=True)
    value = pg_mean(c)
    (slope,) = torch.autograd.grad(value.sum(), c)
    torch.testing.assert_close(value, torch.tanh(c / 2) / (2 * c), rtol=1e-12, atol=0.0)
    assert float(slope.diff().abs().max()) < 1e-8


def test_limits_and_gradients_at_zero_and_far_out() -> None:
    c = torch.tensor([0.0, 1e-30, 1e-8, 1e3, 1e8, 1e150], dtype=torch.float64, requires_grad=True)
    w, k = pg_mean(c), pg_const(c)
    assert w[0].item() == 0.25
    # tanh(c/2)/2c = 1/2c and -log 2cosh(c/2) + c/4 tanh(c/2) = -c/4, far out
    torch.testing.assert_close(w[3:] * c[3:], torch.full((3,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(k[3:] / c[3:], torch.full((3,), -0.25, dtype=torch.float64))
    (slope,) = torch.autograd.grad((w + k).sum(), c)
    assert bool(torch.isfinite(slope).all())


def test_gradcheck() -> None:
    c = torch.tensor([-3.0, 0.01, 0.09, 0.2, 1.0, 5.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pg_mean, (c,))
    assert torch.autograd.gradcheck(pg_const, (c,))


def test_even_in_c() -> None:
    c = torch.linspace(0.0, 9.0, 50, dtype=torch.float64)
    torch.testing.assert_close(pg_mean(-c), pg_mean(c), rtol=0.0, atol=0.0)
    torch.testing.assert_close(pg_const(-c), pg_const(c), rtol=1e-14, atol=0.0)


def test_root_is_finite_for_impossible_estimates() -> None:
    second = torch.tensor([-5.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    mean = torch.tensor([0.0, 3.0, 1.0], dtype=torch.float64)
    c = root_second(second, mean)
    torch.testing.assert_close(c.detach(), torch.tensor([1e-6, 3.0, 2.0], dtype=torch.float64))
    (slope,) = torch.autograd.grad(c.sum(), second)
    assert bool(torch.isfinite(slope).all())


def test_point_mass_at_c_is_exact() -> None:
    f = torch.linspace(-30.0, 30.0, 61, dtype=torch.float64)[:, None]
    y = torch.where(torch.arange(61)[:, None] % 2 == 0, 1.0, -1.0).double()
    bound = Bernoulli().quadratic(y, f.abs()).expectation(gaussian_moments(f, torch.zeros_like(f)))
    # log sigma(x), written without torch's own
    exact = -torch.log1p(torch.exp(-(y * f)[:, 0]))
    torch.testing.assert_close(bound, exact, rtol=1e-12, atol=1e-13)


def test_bound_is_below_the_gauss_hermite_value_on_a_grid() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    mu, var, c, y = (
        t[:, None]
        for t in torch.cartesian_prod(
            torch.linspace(-6.0, 6.0, 13),
            torch.tensor([1e-6, 0.01, 0.1, 1.0, 4.0]),
            torch.tensor([0.0, 0.3, 1.0, 3.0, 10.0, 100.0]),
            torch.tensor([-1.0, 1.0]),
        )
        .double()
        .T
    )
    f = mu + var.sqrt() * torch.as_tensor(nodes)
    exact = -torch.log1p(torch.exp(-y * f)) @ torch.as_tensor(weights / weights.sum())
    likelihood, moments = Bernoulli(), gaussian_moments(mu, var)
    bound = likelihood.quadratic(y, c).expectation(moments)
    best = likelihood.quadratic(y, likelihood.local(y, moments)).expectation(moments)
    # quadrature of a kink-free function at std 2 is good to 1e-7
    assert float((bound - exact).max()) < 1e-6
    assert float((bound - best).max()) < 1e-12
    assert float((exact - best).min()) > -1e-6
