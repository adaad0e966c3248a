"""What holds for every likelihood: the bound is a bound, its local parameters are the best, its expectation is
unbiased."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from orbitgp.inference.moments import estimate
from orbitgp.likelihoods import Bernoulli, Classification, Likelihood, Moments, Quadratic
from orbitgp.orbits import Pairing
from tests.likelihoods.own import gaussian_moments

Targets = Callable[[int], Tensor]


def random_local(likelihood: Likelihood, rows: int, spread: float) -> Tensor | None:
    return spread * torch.randn(rows, likelihood.num_locals, dtype=torch.float64) if likelihood.num_locals else None


def value(likelihood: Likelihood, y: Tensor, local: Tensor | None, moments: Moments) -> Tensor:
    return likelihood.quadratic(y, local).expectation(moments)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
@torch.no_grad()
def test_below_the_log_density_everywhere(likelihood: Likelihood, targets: Targets, spread: float) -> None:
    """For any f and any local parameters: stronger than the same statement about expectations."""
    rows = 4000
    y, f = targets(rows), 3.0 * torch.randn(rows, likelihood.num_latents, dtype=torch.float64)
    bound = value(likelihood, y, random_local(likelihood, rows, spread), gaussian_moments(f, torch.zeros_like(f)))
    exact = likelihood.log_prob(y, f)
    assert float((bound - exact).max()) < 1e-9


@torch.no_grad()
def test_below_the_expected_log_density(likelihood: Likelihood, targets: Targets) -> None:
    """E log p(y|f) by Monte Carlo, with its standard error; the bound at the best and at random local parameters."""
    rows, draws = 12, 40_000
    y = targets(rows)
    mean = 2.0 * torch.randn(rows, likelihood.num_latents, dtype=torch.float64)
    variance = torch.logspace(-2, 1, rows, dtype=torch.float64)[:, None].expand_as(mean)
    moments = gaussian_moments(mean, variance)
    f = mean + variance.sqrt() * torch.randn(draws, *mean.shape, dtype=torch.float64)
    log_prob = likelihood.log_prob(y, f).detach()
    exact, error = log_prob.mean(0), log_prob.std(0) / math.sqrt(draws)
    best = value(likelihood, y, likelihood.local(y, moments), moments)
    assert bool((best <= exact + 4 * error).all())
    for _ in range(20):
        other = value(likelihood, y, random_local(likelihood, rows, 2.0), moments)
        assert bool((other <= best + 1e-9).all())


def test_local_is_the_best(likelihood: Likelihood, targets: Targets) -> None:
    """The bound is flat at ``local`` and lower on all sides."""
    rows = 50
    y = targets(rows)
    mean = 2.0 * torch.randn(rows, likelihood.num_latents, dtype=torch.float64)
    moments = gaussian_moments(mean, 0.01 + 2 * torch.rand_like(mean))
    local = likelihood.local(y, moments)
    if local is None:
        assert likelihood.num_locals == 0
        return
    assert local.shape == (rows, likelihood.num_locals)
    local = local.detach().requires_grad_()
    best = value(likelihood, y, local, moments)
    (slope,) = torch.autograd.grad(best.sum(), local)
    assert float(slope.abs().max()) < 1e-7
    best = best.detach()
    for size in (1e-3, 0.1, 1.0):
        moved = local + size * torch.randn_like(local)
        assert bool((value(likelihood, y, moved, moments) <= best + 1e-12).all())


@torch.no_grad()
def test_exact_for_a_point_mass(likelihood: Likelihood, targets: Targets) -> None:
    rows = 200
    y, f = targets(rows), 3.0 * torch.randn(rows, likelihood.num_latents, dtype=torch.float64)
    point = gaussian_moments(f, torch.zeros_like(f))
    gap = likelihood.log_prob(y, f) - value(likelihood, y, likelihood.local(y, point), point)
    assert float(gap.abs().max()) < 1e-9


@torch.no_grad()
def test_unbiased_under_orbit_sampling(likelihood: Likelihood, targets: Targets) -> None:
    """Block means of a function of the orbit whose mean is known; pairing a sample with itself is seen to fail."""
    rows, blocks, latents = 40_000, 2, likelihood.num_latents
    # The last class: it takes part in every decision of a stick that is broken.
    last = isinstance(likelihood, Classification)
    y = (likelihood.encode(torch.tensor([likelihood.num_classes - 1])) if last else targets(1)).expand(rows, -1)
    # h_k(x_a) = amplitude_k exp(a) + k/4 with a ~ U(0, 1): E h_k = amplitude_k (e - 1) + k/4; latents share the sample.
    amplitude = torch.linspace(-1.5, 2.0, latents + 1, dtype=torch.float64)[1:]
    offset = torch.arange(latents, dtype=torch.float64) / 4
    variance = torch.full((1, latents), 0.3, dtype=torch.float64)
    truth = gaussian_moments((amplitude * (math.e - 1) + offset)[None], variance)
    a = torch.rand(rows, blocks, 1, dtype=torch.float64)
    h = amplitude * a.exp() + offset

    local = likelihood.local(y[:1], truth)
    exact = float(value(likelihood, y[:1], local, truth))
    quadratic = Quadratic(*(t.expand(rows, *t.shape[1:]) for t in likelihood.quadratic(y[:1], local)))

    def z_score(pairing: Pairing) -> float:
        values = quadratic.expectation(estimate(h, variance.expand(rows, -1), pairing))
        return abs(float(values.mean()) - exact) / (float(values.std()) / math.sqrt(rows))

    assert z_score(Pairing.groups(blocks)) < 4
    assert z_score(Pairing(blocks, off=1 / blocks**2, diag=1 / blocks**2)) > 8


def test_local_from_the_scored_draws_is_optimistic() -> None:
    """Why local parameters must come from elsewhere: plugged in from the same draws the bound overshoots its own
    optimum."""
    rows, likelihood = 100_000, Bernoulli()
    y = torch.ones(rows, 1, dtype=torch.float64)
    h = 1.0 + 1.5 * torch.randn(2, rows, 2, 1, dtype=torch.float64)
    variance = torch.full((rows, 1), 0.3, dtype=torch.float64)
    truth = gaussian_moments(torch.ones(1, 1, dtype=torch.float64), variance[:1])
    optimum = float(value(likelihood, y[:1], likelihood.local(y[:1], truth), truth))
    scored, fresh = (estimate(draws, variance, Pairing.groups(2)) for draws in h)
    same = value(likelihood, y, likelihood.local(y, scored), scored)
    other = value(likelihood, y, likelihood.local(y, fresh), scored)
    error = float(other.std()) / math.sqrt(rows)
    assert float(same.mean()) > optimum + 8 * float(same.std()) / math.sqrt(rows)
    assert float(other.mean()) < optimum + 4 * error


def test_gradcheck(likelihood: Likelihood, targets: Targets) -> None:
    """The expectation in the moments, in the local parameters and in the likelihood's own parameters."""
    rows = 3
    y = targets(rows)
    mean = torch.randn(rows, likelihood.num_latents, dtype=torch.float64, requires_grad=True)
    variance = (0.2 + torch.rand_like(mean)).detach().requires_grad_()
    local = random_local(likelihood, rows, 1.0)
    inputs = [mean, variance] + ([] if local is None else [local.requires_grad_()]) + list(likelihood.parameters())

    def expectation(mean: Tensor, variance: Tensor, *rest: Tensor) -> Tensor:
        return value(likelihood, y, local, gaussian_moments(mean, variance))

    assert torch.autograd.gradcheck(expectation, tuple(inputs))


def test_finite_at_the_extremes(likelihood: Likelihood, targets: Targets) -> None:
    """Huge, zero and impossible (negative second) moments; whatever an estimate does, nothing becomes nan."""
    y = targets(6)
    latents = likelihood.num_latents
    mean = torch.tensor([0.0, 0.0, 1e6, -1e6, 5.0, -40.0], dtype=torch.float64)[:, None].expand(-1, latents).clone()
    second = mean.square() + torch.tensor([0.0, 1e12, 0.0, 1.0, -30.0, -1600.0], dtype=torch.float64)[:, None]
    mean.requires_grad_()
    moments = Moments(mean, second)
    local = likelihood.local(y, moments)
    bound = value(likelihood, y, local, moments)
    assert local is None or bool(torch.isfinite(local).all())
    assert bool(torch.isfinite(bound).all())
    (slope,) = torch.autograd.grad(bound.sum(), mean)
    assert bool(torch.isfinite(slope).all())


@torch.no_grad()
def test_one_class_in_a_batch(likelihood: Likelihood) -> None:
    if not isinstance(likelihood, Classification):
        pytest.skip("regression")
    for label in range(likelihood.num_classes):
        y = likelihood.encode(torch.full((5,), label))
        mean = torch.randn(5, likelihood.num_latents, dtype=torch.float64)
        moments = gaussian_moments(mean, torch.ones_like(mean))
        assert bool(torch.isfinite(value(likelihood, y, likelihood.local(y, moments), moments)).all())


@torch.no_grad()
def test_data_in_float32(likelihood: Likelihood, targets: Targets) -> None:
    """Data may be float32 while moments are float64."""
    y = targets(5)
    mean = torch.randn(5, likelihood.num_latents, dtype=torch.float64)
    moments = gaussian_moments(mean, torch.ones_like(mean))
    double = value(likelihood, y, likelihood.local(y, moments), moments)
    single = value(likelihood, y.float(), likelihood.local(y.float(), moments), moments)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


def test_local_parameters_are_required(likelihood: Likelihood, targets: Targets) -> None:
    if likelihood.num_locals:
        with pytest.raises(ValueError, match="local parameters"):
            likelihood.quadratic(targets(2), None)
