"""The recognition network: it learns the best local parameters where they are a function of the datum."""

from __future__ import annotations

import pytest
import torch

from orbitgp.inference.recognition_network import RecognitionNetwork
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood, StickBreaking
from tests.likelihoods.own import gaussian_moments


@pytest.mark.parametrize("shape", [(5,), (8, 8), (7, 9), (3, 8, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_shapes_and_start(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    likelihood = StickBreaking(4)
    x, y = torch.rand(6, *shape, dtype=dtype), likelihood.encode(torch.tensor([0, 1, 2, 3, 0, 1]))
    local = RecognitionNetwork(likelihood, x, y, start=2.5)(x, y)
    assert local.dtype == torch.float64
    torch.testing.assert_close(local.detach(), torch.full((6, 3), 2.5, dtype=torch.float64))


def test_nothing_to_recognise() -> None:
    with pytest.raises(ValueError, match="no local parameters"):
        RecognitionNetwork(Gaussian(), torch.rand(3, 2), torch.rand(3, 1))


def test_a_column_without_spread_does_no_harm() -> None:
    x, y = torch.ones(4, 2), torch.ones(4, 1)
    assert bool(torch.isfinite(RecognitionNetwork(Bernoulli(), x, y)(x, y)).all())


@pytest.mark.slow
def test_learns_the_best_local_parameters() -> None:
    """Moments that are a function of x: trained by the bound alone, the network comes close to the closed form's bound."""
    likelihood: Likelihood = Bernoulli()
    x = torch.linspace(-3, 3, 200, dtype=torch.float64)[:, None]
    y = torch.where(x > 0, 1.0, -1.0).double()
    moments = gaussian_moments(4 * torch.sin(x), 0.2 + x.square() / 4)
    network = RecognitionNetwork(likelihood, x, y)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def bound() -> torch.Tensor:
        return likelihood.quadratic(y, network(x, y)).expectation(moments).mean()

    best = likelihood.quadratic(y, likelihood.local(y, moments)).expectation(moments).mean().item()
    before = bound().item()
    for _ in range(300):
        optimizer.zero_grad()
        (-bound()).backward()
        optimizer.step()
    after = bound().item()
    assert after < best + 1e-12
    assert best - after < 0.05 * (best - before)
