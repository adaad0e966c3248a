"""The evidence on fresh draws, against brute force and against the infinite orbit."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from torch import Tensor

from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Bernoulli, Gaussian, GaussianIndicators, Likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation, Rotation
from orbitgp.training.learned_vector import LearnedVector
from orbitgp.training.objective import Objective

ROWS = 7


def table(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(rows, 2, generator=generator, dtype=torch.float64)
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:]


def matern(a: np.ndarray, b: np.ndarray, kernel: ScaleKernel) -> np.ndarray:
    """The formula of a Matern kernel with nu = 5/2."""
    r = math.sqrt(5) * np.linalg.norm(a[:, None] - b, axis=-1) / kernel.base_kernel.lengthscale.item()
    return kernel.outputscale.item() * (1 + r + r**2 / 3) * np.exp(-r)


def drawn_model(x: Tensor, scale: float, draws: int) -> ExactGP:
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 0.8, 1.7
    return ExactGP(kernel, GaussianNoise(scale).double(), x, mean="zero", num_samples=draws)


class TestAgainstBruteForce:
    """A mean over pairs of draws from different sets, one pair after the other."""

    def covariance(self, model: ExactGP, draws: int, sets: tuple[int, ...]) -> np.ndarray:
        seen = [
            model.restricted(model.x, draws, seed=model.seed + one).samples(model.x).detach().numpy() for one in sets
        ]
        pairs = [(a[:, i], b[:, j]) for a, b in combinations(seen, 2) for i in range(draws) for j in range(draws)]
        assert not any(np.isclose(a, b).any() for a, b in pairs)
        found = np.mean([matern(a, b, model.kernel) for a, b in pairs], axis=0)
        return 0.5 * (found + found.T)

    def evidence(self, covariance: np.ndarray, likelihood: Gaussian, y: Tensor) -> float:
        noisy = covariance + likelihood.noise.item() * np.eye(ROWS)
        return float(multivariate_normal(np.zeros(ROWS), noisy).logpdf(y[:, 0].numpy()))

    @pytest.mark.parametrize(("sets", "draws", "each"), [((1, 2), 3, 3), ((3, 4, 5), 3, 3), ((3, 4, 5), 80, 40)])
    def test_with_noise_enough(self, sets: tuple[int, ...], draws: int, each: int) -> None:
        """Three sets of many draws have half of them."""
        x, y = table()
        model, likelihood = drawn_model(x, 0.6, draws), Gaussian(1, 0.4)
        expected = self.evidence(self.covariance(model, each, sets), likelihood, y)
        found = model.fresh_evidence(likelihood, y, sets=sets)
        assert found.value == pytest.approx(expected, abs=1e-8)
        assert abs(model.log_evidence(likelihood, y) - expected) > 0.01  # pairs of equal draws count there

    def test_the_error_is_half_of_an_interval_by_the_jackknife(self) -> None:
        """Each set is left out in turn. A 97.5 % quantile of Student's t with two degrees of freedom is 4.3027."""
        x, y = table()
        model, likelihood = drawn_model(x, 0.6, 3), Gaussian(1, 0.4)
        left = [self.evidence(self.covariance(model, 3, two), likelihood, y) for two in ((4, 5), (3, 5), (3, 4))]
        deviation = math.sqrt(2 / 3 * sum((value - np.mean(left)) ** 2 for value in left))
        found = model.fresh_evidence(likelihood, y, sets=(3, 4, 5))
        assert found.error == pytest.approx(4.3027 * deviation / 2, rel=1e-4)

    def test_the_positive_part_stands_for_a_covariance_that_is_none(self) -> None:
        """Two draws a set, far from each other: pairs between the sets are no covariance."""
        x, y = table()
        model, likelihood = drawn_model(x, 4.0, 2), Gaussian(1, 0.02)
        values, directions = np.linalg.eigh(self.covariance(model, 2, (1, 2)))
        assert values[0] < -likelihood.noise.item()
        expected = self.evidence(directions * values.clip(0.0) @ directions.T, likelihood, y)
        assert model.fresh_evidence(likelihood, y).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("orbit", [Identity(), Permutation.swap(0, 1)])
def test_an_orbit_that_is_seen_whole_has_nothing_fresh(orbit: Orbit) -> None:
    x, y = table()
    model = ExactGP(ScaleKernel(RBFKernel()).double(), orbit, x)
    assert model.fresh_evidence(Gaussian(1, 0.1), y) == (model.log_evidence(Gaussian(1, 0.1), y), 0.0)


def iris() -> tuple[Tensor, Tensor]:
    """100 flowers, or as many of them as differ, standardised, and their labels."""
    data = load_iris()
    x = (data.data - data.data.mean(0)) / data.data.std(0)
    some = np.random.default_rng(10).permutation(150)[:100]
    x, first = np.unique(x[some], axis=0, return_index=True)
    return torch.from_numpy(x), torch.from_numpy(data.target[some][first])


class TestAgainstTheInfiniteOrbit:
    """Noise under an RBF kernel is again an RBF kernel, wider and lower."""

    DRAWS = 32

    def evidences(self, lengthscale: float, variance: float, scale: float, noise: float) -> tuple[float, float, float]:
        """Of the infinite orbit, of shared draws, and of fresh ones."""
        x, labels = iris()
        likelihood = GaussianIndicators(3, noise)
        y = likelihood.encode(labels)
        kernel = ScaleKernel(RBFKernel()).double()
        kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, variance
        model = ExactGP(kernel, GaussianNoise(scale).double(), x, 3, num_samples=self.DRAWS)
        wider = lengthscale**2 + 2 * scale**2
        squared = (x[:, None] - x).square().sum(-1)
        k = variance * (lengthscale**2 / wider) ** (x.shape[1] / 2) * torch.exp(-0.5 * squared / wider)
        infinite = self.closed(k.numpy() + likelihood.noise.item() * np.eye(len(x)), y.numpy())
        return infinite, model.log_evidence(likelihood, y), model.fresh_evidence(likelihood, y).value

    @staticmethod
    def closed(covariance: np.ndarray, y: np.ndarray) -> float:
        """The log evidence, with a mean at its best for each latent function."""
        inverse = np.linalg.inv(covariance)
        means = inverse.sum(0) @ y / inverse.sum()
        return sum(
            multivariate_normal(np.full(len(y), m), covariance).logpdf(t) for m, t in zip(means, y.T, strict=True)
        )

    def test_parameters_that_feed_on_shared_draws_are_found_out(self) -> None:
        infinite, shared, fresh = self.evidences(0.437, 2.179, 0.623, 1.01e-6)
        assert shared > infinite + 100
        assert fresh < infinite

    def test_two_errors_hold_it_in_nineteen_of_twenty(self) -> None:
        """100 intervals from as many times five sets. Three sets and the largest difference between pairs held 80 of
        100."""
        x, y = table()
        kernel, likelihood, scale = ScaleKernel(RBFKernel()).double(), Gaussian(1, 0.05), 0.4
        kernel.base_kernel.lengthscale, kernel.outputscale = 1.0, 1.0
        wider = 1.0 + 2 * scale**2
        k = torch.exp(-0.5 * torch.cdist(x, x).square() / wider) / wider
        infinite = multivariate_normal(np.zeros(ROWS), k.numpy() + 0.05 * np.eye(ROWS)).logpdf(y[:, 0].numpy())
        model = ExactGP(kernel, GaussianNoise(scale).double(), x, mean="zero", num_samples=64)  # sets of 32
        found = [model.fresh_evidence(likelihood, y, sets=range(5 * i, 5 * i + 5)) for i in range(100)]
        missed = np.array([one.value - infinite for one in found])
        errors = np.array([one.error for one in found])
        assert 90 <= np.sum(np.abs(missed) <= 2 * errors) <= 99
        assert errors.mean() < 1.6 * missed.std()  # 1.39 is Student's factor of five sets

    @pytest.mark.parametrize("parameters", [(1.5, 1.0, 0.1, 0.05), (2.0, 2.0, 0.2, 0.1)])
    def test_honest_parameters_are_not_doubted(self, parameters: tuple[float, float, float, float]) -> None:
        infinite, shared, fresh = self.evidences(*parameters)
        assert shared == pytest.approx(infinite, abs=1.0)
        assert fresh == pytest.approx(infinite, abs=1.0)


class TestNothingIsLeftBehind:
    """An evaluation moves the parameters to where it was asked for, and changes nothing else."""

    def state(self, model: ExactGP, likelihood: Likelihood) -> dict[str, Tensor]:
        parts = {**model.state_dict(), **{f"likelihood.{name}": v for name, v in likelihood.state_dict().items()}}
        return {name: value.clone() for name, value in parts.items()}

    def problem(self, likelihood: Likelihood, orbit: Orbit) -> tuple[ExactGP, Tensor]:
        x = torch.rand(8, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        y = x.sum((1, 2), keepdim=True)[:, 0] - 8
        y = torch.sign(y) if isinstance(likelihood, Bernoulli) else y
        model = ExactGP(ScaleKernel(RBFKernel()).double(), orbit.double(), x, num_samples=4)
        model.condition(likelihood, y)
        return model, y

    @pytest.mark.parametrize("likelihood", [Gaussian(1, 0.1), Bernoulli()], ids=["gaussian", "bernoulli"])
    @pytest.mark.parametrize("orbit", [Rotation(20.0), GaussianNoise(0.2)], ids=["rotation", "noise"])
    def test_of_an_evaluation(self, likelihood: Likelihood, orbit: Orbit) -> None:
        model, y = self.problem(likelihood, orbit)
        new = torch.rand(3, 4, 4, dtype=torch.float64)
        predicted = torch.stack(model.predict(new))
        learned = LearnedVector(model, likelihood)
        here = learned.get()
        before = self.state(model, likelihood)
        view = model.restricted(model.x[:6], 8)
        objective = Objective(view, likelihood, y[:6], learned)
        first = objective(here), objective.value_at(here), objective.fresh_at(here).value
        elsewhere = objective.value_at(here + 0.3), objective.fresh_at(here + 0.3).value
        assert elsewhere != first[1:]
        assert objective(here)[0] == pytest.approx(first[0][0], abs=1e-6)
        after = self.state(model, likelihood)
        assert before.keys() == after.keys()
        for name, value in before.items():
            torch.testing.assert_close(after[name], value, rtol=1e-14, atol=1e-14, msg=name)
        assert model.num_samples == 4
        torch.testing.assert_close(torch.stack(model.predict(new)), predicted)

    @pytest.mark.parametrize("likelihood", [Gaussian(1, 0.1), Bernoulli()], ids=["gaussian", "bernoulli"])
    def test_of_a_number(self, likelihood: Likelihood) -> None:
        model, y = self.problem(likelihood, Rotation(20.0))
        before = self.state(model, likelihood)
        values = [(model.log_evidence(likelihood, y), model.fresh_evidence(likelihood, y)) for _ in range(2)]
        assert values[0] == values[1]
        after = self.state(model, likelihood)
        assert all(torch.equal(after[name], value) for name, value in before.items())
