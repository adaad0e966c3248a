"""q(u) of a likelihood that couples its outputs: against the exact Gaussian process of two outputs with correlated noise."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood, Quadratic
from orbitgp.orbits import Identity, Permutation
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

NOISE = [[0.10, 0.06], [0.06, 0.08]]


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class CorrelatedGaussian(Likelihood):
    """y ~ N(f, NOISE) for two outputs: log p is itself a quadratic in f, with the full matrix NOISE^-1."""

    num_latents, couples = 2, True

    def quadratic(self, y, local=None):
        noise = torch.tensor(NOISE)
        precision = torch.linalg.inv(noise)
        eta = y @ precision
        const = -0.5 * (y * eta).sum(-1) - 0.5 * torch.logdet(2 * math.pi * noise)
        return Quadratic(const, eta, precision.expand(len(y), 2, 2))


class WithDummyLocal(CorrelatedGaussian):
    """The same, with a local parameter that nothing depends on."""

    num_locals = 1

    def local(self, y, moments):
        return torch.ones(len(y), 1)


def problem(finite):
    """Data, and inducing points that determine f: the data, with all elements of their orbits."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(12, 2, generator=generator)
    y = torch.stack([torch.sin(2 * x.sum(1)), torch.cos(x.sum(1))], 1) + 0.2 * torch.randn(12, 2, generator=generator)
    orbit = Permutation.swap(0, 1) if finite else Identity()
    return x, y, orbit, torch.cat([x, x.flip(1)]) if finite else x


def make_trainer(likelihood, finite, **options):
    x, y, orbit, inducing = problem(finite)
    kernel = ScaleKernel(RBFKernel())
    model = InvariantGP(kernel, orbit, inducing, 2, "zero", shared_covariance=False, jitter=1e-10)
    return Trainer(model, likelihood, x, y, TrainerSettings(num_samples=None, start_rows=0, **options))


def exact_bound(model, finite):
    """The best bound of a q(u) that is independent between outputs: log p(y) less the KL of the best such q to the posterior.

    The posterior of u is Gaussian with precision P. The best q has its mean and the diagonal blocks of P, so
    KL = 1/2 (sum_l log|P_ll| - log|P|). Everything here is dense, over both outputs at once.
    """
    x, y, _, inducing = problem(finite)

    def k(a, b):
        distance = (a[:, None] - b).square().sum(-1)
        return model.kernel.outputscale * torch.exp(-0.5 * distance / model.kernel.base_kernel.lengthscale**2)

    elements = [x, x.flip(1)] if finite else [x]
    kff = sum(k(a, b) for a in elements for b in elements) / len(elements) ** 2
    kfu = sum(k(a, inducing) for a in elements) / len(elements)
    noise = torch.tensor(NOISE)
    noise_precision = torch.linalg.inv(noise).contiguous()
    covariance = torch.kron(torch.eye(2), kff) + torch.kron(noise, torch.eye(len(x)))
    law = torch.distributions.MultivariateNormal(torch.zeros(2 * len(x)), covariance)
    whitened = torch.linalg.solve_triangular(model.factor(), kfu.mT, upper=False)
    precision = torch.eye(2 * len(inducing)) + torch.kron(noise_precision, whitened @ whitened.mT)
    size = len(inducing)
    blocks = [precision[:size, :size], precision[size:, size:]]
    kl = 0.5 * (sum(torch.logdet(block) for block in blocks) - torch.logdet(precision))
    return (law.log_prob(y.mT.flatten()) - kl).item()


@pytest.mark.parametrize("finite", [False, True], ids=["no orbit", "enumerated orbit"])
@pytest.mark.parametrize("likelihood", [CorrelatedGaussian, WithDummyLocal])
@torch.no_grad()
@pytest.mark.slow
def test_updates_of_coupled_outputs_end_at_the_exact_optimum(likelihood, finite):
    trainer = make_trainer(likelihood(), finite)
    for _ in range(100):
        trainer.stochastic.posterior.update(trainer.stochastic.posterior.rho())
    samples = trainer.model.orbit.sample(trainer.x, None)
    local = torch.ones(len(trainer.x), 1)
    bound = elbo(trainer.model, trainer.likelihood, samples, trainer.y, len(trainer.x), local).item()
    assert bound == pytest.approx(exact_bound(trainer.model, finite), abs=1e-5)


@pytest.mark.parametrize("finite", [False, True], ids=["no orbit", "enumerated orbit"])
@pytest.mark.slow
def test_a_dummy_local_parameter_changes_nothing(finite, monkeypatch):
    """Trained from the same start, both end at the same bound, which is what the exact computation says it is."""
    monkeypatch.setattr("orbitgp.training.stochastic_steps.MOST_PASSES", 40)
    bounds = []
    for likelihood in (CorrelatedGaussian(), WithDummyLocal()):
        trainer = make_trainer(likelihood, finite, max_steps=30)
        trainer.run()
        samples = trainer.model.orbit.sample(trainer.x, None)
        local = torch.ones(len(trainer.x), 1)
        with torch.no_grad():
            bounds.append(elbo(trainer.model, likelihood, samples, trainer.y, len(trainer.x), local).item())
    assert bounds[0] == pytest.approx(bounds[1], abs=0.01)
