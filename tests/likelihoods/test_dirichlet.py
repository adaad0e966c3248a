"""The Dirichlet likelihood: its targets are the log-normal that matches Gamma variables, by simulation and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from orbitgp.likelihoods import Dirichlet


@pytest.mark.parametrize("concentration", [0.3, 0.01])
def test_targets_match_the_moments_of_gamma_variables(concentration: float) -> None:
    """exp N(t, s^2) has the mean and the variance of a Gamma(a, 1) variable, both of which are a."""
    t, noise = Dirichlet(3, concentration).observations(torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64))
    a = np.array([concentration, 1 + concentration, concentration])
    # the likelihood subtracts a constant that softmax does not see
    shift = math.log(a[0]) - 0.5 * float(noise[0, 0]) - float(t[0, 0])
    for k in range(3):
        law = scipy.stats.lognorm(s=math.sqrt(noise[0, k]), scale=math.exp(float(t[0, k]) + shift))
        assert law.mean() == pytest.approx(a[k])
        assert law.var() == pytest.approx(a[k])
    assert float(t.sum()) == pytest.approx(0.0, abs=1e-12)


def test_density_by_scipy() -> None:
    likelihood = Dirichlet(3, 0.05)
    y = likelihood.encode(torch.tensor([2, 0]))
    f = torch.randn(2, 3, dtype=torch.float64)
    t, noise = likelihood.observations(y)
    expected = scipy.stats.norm.logpdf(t.numpy(), f.numpy(), noise.sqrt().numpy()).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(y, f).numpy(), expected)
    assert likelihood.num_locals == 0


def test_a_label_tells_more_of_its_own_class_and_more_with_a_smaller_concentration() -> None:
    y = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    contrasts = []
    for concentration in (0.1, 0.01, 1e-4):
        t, noise = Dirichlet(2, concentration).observations(y)
        assert float(noise[0, 0]) < float(noise[0, 1])
        contrasts.append(float((t[0, 0] - t[0, 1]) / (noise[0, 0] + noise[0, 1]).sqrt()))
    assert contrasts == sorted(contrasts)


def test_start_is_where_the_targets_are() -> None:
    likelihood = Dirichlet(4)
    y = likelihood.encode(torch.arange(4).repeat(5))
    variance, mean = likelihood.start(y)
    t, _ = likelihood.observations(y)
    assert variance == pytest.approx(float(t.var(0, correction=0)[0]))
    torch.testing.assert_close(mean, torch.zeros(4, dtype=torch.float64), rtol=0.0, atol=1e-9)


def test_bad_concentration() -> None:
    with pytest.raises(ValueError, match="positive"):
        Dirichlet(3, 0.0)
