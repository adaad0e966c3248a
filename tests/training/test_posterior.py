"""q(u) of all data: against the exact Gaussian process of two outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Identity, Permutation
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

NOISE = 0.1


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def problem(finite: bool) -> tuple[torch.Tensor, torch.Tensor, Permutation | Identity, torch.Tensor]:
    """Data, and inducing points that determine f: the data, with all elements of their orbits."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(12, 2, generator=generator)
    y = torch.stack([torch.sin(2 * x.sum(1)), torch.cos(x.sum(1))], 1) + 0.2 * torch.randn(12, 2, generator=generator)
    orbit = Permutation.swap(0, 1) if finite else Identity()
    return x, y, orbit, torch.cat([x, x.flip(1)]) if finite else x


def make_trainer(likelihood: Gaussian, finite: bool, **options: Any) -> Trainer:
    x, y, orbit, inducing = problem(finite)
    kernel = ScaleKernel(RBFKernel())
    model = InvariantGP(kernel, orbit, inducing, 2, "zero", shared_covariance=False, jitter=1e-10)
    return Trainer(model, likelihood, x, y, TrainerSettings(num_samples=None, start_rows=0, **options))


def log_evidence(model: Any, finite: bool) -> Any:
    """log p(y), of both outputs, by a dense covariance: the inducing points determine f, so that the best bound is
    this."""
    x, y, _, _ = problem(finite)

    def k(a: Any, b: Any) -> Any:
        distance = (a[:, None] - b).square().sum(-1)
        return model.kernel.outputscale * torch.exp(-0.5 * distance / model.kernel.base_kernel.lengthscale**2)

    elements = [x, x.flip(1)] if finite else [x]
    kff = sum(k(a, b) for a in elements for b in elements) / len(elements) ** 2
    law = torch.distributions.MultivariateNormal(torch.zeros(len(x)), kff + NOISE * torch.eye(len(x)))
    return law.log_prob(y.mT).sum().item()


@pytest.mark.parametrize("finite", [False, True], ids=["no orbit", "enumerated orbit"])
@torch.no_grad()
def test_an_update_ends_at_the_exact_optimum(finite: bool) -> None:
    trainer = make_trainer(Gaussian(2, noise=NOISE), finite)
    trainer.stochastic.posterior.update(trainer.stochastic.posterior.rho())
    samples = trainer.model.orbit.sample(trainer.x, None)
    bound = elbo(trainer.model, trainer.likelihood, samples, trainer.y, len(trainer.x)).item()
    assert bound == pytest.approx(log_evidence(trainer.model, finite), abs=1e-4)
