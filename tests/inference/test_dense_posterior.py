"""The posterior given K_f, against normal laws, and from many starts of local parameters."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor
from torch.distributions import MultivariateNormal

from experiments.stick_breaking import StickBreaking
from orbitgp.inference import dense_posterior
from orbitgp.inference.dense_posterior import solve
from orbitgp.likelihoods import Bernoulli, Classification, Dirichlet, Gaussian, Quadratic


def line(rows: int) -> Tensor:
    return torch.linspace(0, 6, rows, dtype=torch.float64)[:, None]


def gram(x: Tensor, lengthscale: float = 0.3, variance: float = 1000.0) -> Tensor:
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return variance * kernel(x).to_dense().detach()


def classes(likelihood: Classification, x: Tensor) -> Tensor:
    return likelihood.encode((2 * x[:, 0]).long() % likelihood.num_classes)


def zeros(y: Tensor, latents: int = 1) -> Tensor:
    return torch.zeros(len(y), latents, dtype=torch.float64)


class TestGaussian:
    def test_evidence_is_that_of_a_normal_law(self) -> None:
        x, likelihood = line(12), Gaussian(1, 0.3)
        y, means = torch.sin(x), 0.2 * x
        covariance = gram(x) + likelihood.noise.item() * torch.eye(12, dtype=torch.float64)
        solution = solve(gram(x), means, likelihood, y, learns_mean=False)
        expected = MultivariateNormal(means[:, 0], covariance).log_prob(y[:, 0])
        assert solution.log_evidence == pytest.approx(expected.item(), abs=1e-6)
        assert solution.bias is None
        torch.testing.assert_close(covariance @ solution.weights, y - means)

    def test_no_other_constant_has_more_evidence(self) -> None:
        x, likelihood = line(12), Gaussian(1, 0.3)
        y = 5 + torch.sin(x)
        best = solve(gram(x), zeros(y), likelihood, y)
        assert best.bias is not None
        for change in (-0.1, 0.0, 0.1):
            given = solve(gram(x), zeros(y) + best.bias + change, likelihood, y, learns_mean=False).log_evidence
            assert given == pytest.approx(best.log_evidence, abs=1e-8) if change == 0 else given < best.log_evidence

    def test_each_class_has_its_own_noise_and_constant(self) -> None:
        x, likelihood = line(12), Dirichlet(3)
        y = classes(likelihood, x)
        together = solve(gram(x), zeros(y, 3), likelihood, y)
        observed = dense_posterior.Observations.of(likelihood.quadratic(y, None))
        assert together.bias is not None
        laws = [
            MultivariateNormal(together.bias[k].expand(12), gram(x) + observed.noise[:, k].diag()) for k in range(3)
        ]
        each = [law.log_prob(observed.targets[:, k]) for k, law in enumerate(laws)]
        assert together.log_evidence == pytest.approx(float(observed.constant + sum(each)), abs=1e-5)


class TestSilentData:
    """A datum whose quadratic is flat (lam = 0) says nothing, in whatever units the targets are."""

    @pytest.mark.parametrize("unit", [1.0, 1e10, 1e-10])
    def test_it_changes_no_evidence(self, unit: float) -> None:
        x = line(3)
        covariance = unit**2 * gram(x, 1.0, 2.0)
        lam = torch.tensor([[4.0], [0.0], [3.0]], dtype=torch.float64) / unit**2
        y = unit * torch.tensor([[1.0], [0.0], [-2.0]], dtype=torch.float64)
        observed = dense_posterior.Observations.of(Quadratic(torch.zeros(3), lam * y, lam))
        kept = [0, 2]
        torch.testing.assert_close(observed.targets[kept], y[kept])
        torch.testing.assert_close(observed.noise[kept], 1 / lam[kept])
        law = MultivariateNormal(torch.zeros(3).double(), covariance + observed.noise[:, 0].diag())
        # exp(eta f - lam f^2 / 2) = N(y; f, 1 / lam) exp(y^2 lam / 2) sqrt(2 pi / lam), of the two that say something
        seen = covariance[kept][:, kept] + torch.diag(1 / lam[kept, 0])
        constant = 0.5 * (lam[kept] * y[kept].square() + torch.log(2 * torch.pi / lam[kept])).sum()
        expected = constant + MultivariateNormal(torch.zeros(2).double(), seen).log_prob(y[kept, 0])
        found = observed.constant + law.log_prob(observed.targets[:, 0])
        assert float(found) == pytest.approx(float(expected), abs=1e-5)

    def test_all_of_them(self) -> None:
        nothing = torch.zeros(3, 1, dtype=torch.float64)
        observed = dense_posterior.Observations.of(Quadratic(torch.zeros(3), nothing, nothing))
        assert bool(observed.noise.isfinite().all())
        assert bool((observed.noise > 1e6).all())


class TestLocalParameters:
    @pytest.mark.parametrize("likelihood", [Bernoulli(), StickBreaking(3)], ids=["bernoulli", "stick-breaking"])
    @pytest.mark.usefixtures("fully_settled")
    def test_log_concave_likelihoods_have_one_top(self, likelihood: Classification) -> None:
        x = line(40)
        y = classes(likelihood, x)
        columns = 2 if likelihood.knows_tilted else likelihood.num_locals  # of sites, or of the bound
        starts = [10 ** (4 * torch.rand(40, columns, dtype=torch.float64) - 2) for _ in range(5)]
        ends = [solve(gram(x), zeros(y, likelihood.num_latents), likelihood, y, start).log_evidence for start in starts]
        assert max(ends) - min(ends) < 1e-5
