"""The whole bound, without an orbit: below the exact log marginal likelihood, and close to GPyTorch's SVGP by
quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.integrate import trapezoid
from torch import Tensor

from experiments.logistic_bound import DIABETES, bounds, gap_table
from experiments.stick_breaking import StickBreaking
from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Likelihood
from orbitgp.orbits import Identity
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer


def kernel(lengthscale: float, variance: float) -> ScaleKernel:
    k = ScaleKernel(RBFKernel()).double()
    k.base_kernel.lengthscale, k.outputscale = lengthscale, variance
    return k.requires_grad_(False)


def best_bound(x: Tensor, y: Tensor, inducing: Tensor, k: ScaleKernel, likelihood: Likelihood) -> float:
    """The bound with q(u) and c at their best, by closed-form updates in turn; all data, no orbit, so nothing is
    random."""
    model = InvariantGP(
        k, Identity(), inducing, likelihood.num_latents, "zero", likelihood.shares_curvature, jitter=1e-8
    )
    trainer = Trainer(model, likelihood, x, y, TrainerSettings(num_samples=None))
    for _ in range(25):
        trainer.stochastic.posterior.update(1.0)
    samples = model.orbit.sample(x, None)
    local = likelihood.local(y, model.moments(model.whitened_means(samples)))
    return elbo(model, likelihood, samples, y, len(x), local).item()


@pytest.mark.slow
def test_below_the_exact_evidence_of_three_data() -> None:
    """log of the integral of prod sigma(y f) N(f; 0, K), over a grid of Gauss-Hermite nodes in three dimensions."""
    x = torch.tensor([[0.0], [0.7], [2.0]], dtype=torch.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    z = torch.tensor(np.array(list(itertools.product(nodes, repeat=3))))
    w = torch.tensor(np.array(list(itertools.product(weights / weights.sum(), repeat=3)))).prod(1)
    for variance, largest_gap in ((0.1, 0.001), (1.0, 0.05), (10.0, 0.5)):
        k = kernel(1.0, variance)
        f = z @ torch.linalg.cholesky(k(x).to_dense() + 1e-8 * torch.eye(3, dtype=torch.float64)).mT
        for signs in ((1.0, 1.0, 1.0), (1.0, 1.0, -1.0), (1.0, -1.0, 1.0)):
            y = torch.tensor(signs, dtype=torch.float64)
            exact = float(torch.log((torch.sigmoid(y * f).prod(1) * w).sum()))
            bound = best_bound(x, y[:, None], x, k, Bernoulli())
            assert bound < exact + 1e-7
            assert exact - bound < largest_gap


@pytest.mark.slow
def test_stick_breaking_is_below_the_exact_evidence_of_two_data() -> None:
    """The same for three classes, by plain sums over draws of the prior, with their standard error."""
    x = torch.tensor([[0.0], [0.6]], dtype=torch.float64)
    k, labels = kernel(1.0, 2.0), torch.tensor([0, 2])
    root = torch.linalg.cholesky(k(x).to_dense())
    draws = 400_000
    likelihood = StickBreaking(3)
    y = likelihood.encode(labels)
    f = root @ torch.randn(draws, 2, likelihood.num_latents, dtype=torch.float64)
    values = likelihood.log_prob(y, f).sum(-1).exp()
    error = float(values.std() / values.mean()) / draws**0.5
    bound = best_bound(x, y, x, k, likelihood)
    exact = float(values.mean().log())
    assert bound < exact + 4 * error
    assert exact - bound < 0.5


@pytest.mark.slow
def test_close_to_the_svgp_of_gpytorch_at_convergence() -> None:
    """Kernel, mean and posterior at their best for both, on real data; training gets there, and never above."""
    found = bounds(DIABETES, num_inducing=12, max_steps=80)
    assert found.svgp * 1.01 < found.trained < found.svgp
    assert found.best * 1.001 < found.trained < found.best + 1e-3


def test_gap_closes_only_with_the_variance() -> None:
    rows = gap_table(means=(0.0, 1.0, 3.0), variances=(1e-4, 1e-2, 1.0, 16.0))
    for mean in (0.0, 1.0, 3.0):
        gaps = [row.gap for row in rows if row.mean == mean]
        assert gaps == sorted(gaps)
        assert gaps[0] < 1e-4
        assert gaps[-1] > 0.2
    row = next(row for row in rows if row.mean == 1.0 and row.variance == 1.0)
    assert row.c == pytest.approx(math.sqrt(2.0))
    # E log sigma(f), f ~ N(1, 1), by an integral of our own
    z = np.linspace(-12, 12, 100_001)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    assert row.exact == pytest.approx(trapezoid(-np.logaddexp(0.0, -(1 + z)) * density, z), abs=1e-9)
