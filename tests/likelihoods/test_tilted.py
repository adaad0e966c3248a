"""Means of likelihoods over a normal f, and their derivatives, against quadrature and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import trapezoid
from scipy.special import expit, log_expit
from torch import Tensor

from orbitgp.likelihoods import Bernoulli
from orbitgp.likelihoods.tilted import logistic_as_probits, tilted_by_probits

MEANS = torch.tensor([-80.0, -10.0, -3.0, 0.0, 0.5, 3.0, 20.0], dtype=torch.float64)[:, None]


def by_quadrature(mean: float, variance: float) -> tuple[float, float, float]:
    """log Z, and mean and variance of N(f; mean, variance) sigma(f), on a grid that is fine where either factor
    turns."""
    std = np.sqrt(variance)
    ends = np.linspace(mean - 12 * std, mean + 12 * std + (variance if mean < 0 else 0.0), 200_001)
    f = np.unique(np.concatenate([ends, np.linspace(-60, 60, 200_001)]))
    log_density = log_expit(f) - 0.5 * (f - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance)
    density = np.exp(log_density - log_density.max())
    total = trapezoid(density, f)
    first = trapezoid(density * f, f) / total
    return np.log(total) + log_density.max(), first, trapezoid(density * (f - first) ** 2, f) / total


def test_the_logistic_function_is_a_mixture_of_probits() -> None:
    weights, scales = logistic_as_probits()
    f = np.linspace(-30, 30, 301)
    mixture = np.exp(torch.special.log_ndtr(torch.as_tensor(f)[:, None] / scales).numpy()) @ weights.numpy()
    np.testing.assert_allclose(mixture, expit(f), rtol=2e-9)


@pytest.mark.parametrize("variance", [0.3, 1.0, 100.0, 1e4, 1e6])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_tilted_laws_of_the_logistic_function(variance: float, sign: float) -> None:
    found = Bernoulli().tilted(torch.full_like(MEANS, sign), sign * MEANS, torch.full_like(MEANS, variance))
    for mean, log_z, slope, curvature in zip(
        MEANS[:, 0].tolist(), *(part[:, 0].tolist() for part in found), strict=True
    ):
        expected, first, second = by_quadrature(mean, variance)
        assert log_z == pytest.approx(expected, abs=1e-6)
        assert mean + sign * variance * slope == pytest.approx(first, rel=1e-5, abs=1e-5)
        assert variance - variance**2 * curvature == pytest.approx(second, rel=1e-4)


def test_slope_and_curvature_are_derivatives() -> None:
    y, variance = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.tensor([[0.5], [7.0]], dtype=torch.float64)
    weights, scales = torch.tensor([0.3, 0.7], dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)

    def at(mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return tilted_by_probits(y, mean, variance, weights, scales)

    mean = torch.tensor([[0.4], [1.5]], dtype=torch.float64, requires_grad=True)
    log_z, slope, curvature = at(mean)
    torch.testing.assert_close(torch.autograd.grad(log_z.sum(), mean, retain_graph=True)[0], slope)
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), mean)[0], -curvature)
