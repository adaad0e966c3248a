"""k_f in closed form, against the same formula in NumPy, finite differences, and the limit of many draws."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from sklearn.datasets import load_iris
from torch import nn

from orbitgp import InvariantGPRegressor, compare
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import FeatureMapKernel
from orbitgp.kernels.covariance import closed_form
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, Orbit, Permutation

N, DIM, NOISE = 12, 3, 0.05
X = np.random.default_rng(0).normal(size=(N, DIM))
Y = np.sin(X @ [1.0, 2.0, -1.0])


def noise(*scales: float) -> GaussianNoise:
    orbit = GaussianNoise(num_features=len(scales) if len(scales) > 1 else None).double()
    with torch.no_grad():
        orbit.scale.copy_(torch.tensor(scales, dtype=torch.float64).squeeze())
    return orbit


def rbf(*lengthscales: float, variance: float | None = 2.0, **settings: object) -> Kernel:
    base = RBFKernel(ard_num_dims=len(lengthscales) if len(lengthscales) > 1 else None, **settings).double()
    base.lengthscale = torch.tensor(lengthscales, dtype=torch.float64)
    if variance is None:
        return base
    kernel = ScaleKernel(base).double()
    kernel.outputscale = variance
    return kernel


def k_f(a: np.ndarray, b: np.ndarray, lengthscales: np.ndarray, variance: float, scales: np.ndarray) -> np.ndarray:
    """The closed form, written again: a Gaussian of width l convolved with that of the noise of either input."""
    lengthscales, scales = np.broadcast_to(lengthscales, DIM), np.broadcast_to(scales, DIM)
    found = np.full((len(a), len(b)), variance)
    for d in range(DIM):
        wide = lengthscales[d] ** 2 + scales[d] ** 2 + scales[d] ** 2
        found *= np.sqrt(lengthscales[d] ** 2 / wide) * np.exp(-((a[:, None, d] - b[None, :, d]) ** 2) / (2 * wide))
    return found


def log_evidence(k: np.ndarray, y: np.ndarray, s2: float) -> float:
    """log N(y; b, K + s2 I) at the best constant b."""
    c = k + s2 * np.eye(len(y))
    inverse = np.linalg.inv(c)
    rest = y - (inverse @ y).sum() / inverse.sum()
    return -0.5 * float(rest @ inverse @ rest + np.linalg.slogdet(c)[1] + len(y) * np.log(2 * np.pi))


def model_of(
    kernel: Kernel, orbit: Orbit, num_samples: int | None = None, rows: int = N
) -> tuple[ExactGP, Gaussian, torch.Tensor]:
    likelihood = Gaussian(1, NOISE).double()
    return (
        ExactGP(kernel, orbit, torch.tensor(X[:rows]), num_samples=num_samples),
        likelihood,
        torch.tensor(Y[:rows, None]),
    )


FAMILIES = {
    "one of each": ((1.3,), (0.4,)),
    "ARD": ((1.3, 0.7, 2.0), (0.4,)),
    "scales": ((1.3,), (0.4, 0.1, 0.9)),
    "ARD and scales": ((1.3, 0.7, 2.0), (0.4, 0.1, 0.9)),
}


@pytest.mark.parametrize(("lengthscales", "scales"), FAMILIES.values(), ids=FAMILIES)
class TestNoiseUnderAnRBF:
    def test_evidence_and_gradient_are_those_of_the_formula(
        self, lengthscales: tuple[float, ...], scales: tuple[float, ...]
    ) -> None:
        model, likelihood, y = model_of(rbf(*lengthscales), noise(*scales))
        found = model.evidence_with_gradient(likelihood, y).log_evidence
        base, parameters = model.kernel.base_kernel, [np.array(lengthscales), np.array([2.0]), np.array(scales)]

        def formula() -> float:
            return log_evidence(k_f(X, X, parameters[0], parameters[1][0], parameters[2]), Y, likelihood.noise.item())

        assert found == pytest.approx(formula(), abs=1e-8)
        raw = (base.raw_lengthscale, model.kernel.raw_outputscale, model.orbit.scale)
        for parameter, meant, value in zip(
            raw, (base.lengthscale, model.kernel.outputscale, model.orbit.scale), parameters, strict=True
        ):
            slopes = np.zeros_like(value)
            for i in range(len(value)):
                value[i] += 1e-5
                up = formula()
                value[i] -= 2e-5
                slopes[i] = (up - formula()) / 2e-5
                value[i] += 1e-5
            expected = torch.autograd.grad(meant, parameter, torch.tensor(slopes).view_as(meant))[
                0
            ]  # from l to what is learned
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-6)

    def test_predictions_are_those_of_the_formula(
        self, lengthscales: tuple[float, ...], scales: tuple[float, ...]
    ) -> None:
        model, likelihood, y = model_of(rbf(*lengthscales), noise(*scales))
        model.condition(likelihood, y)
        new, own = np.random.default_rng(1).normal(size=(5, DIM)), (np.array(lengthscales), 2.0, np.array(scales))
        inverse = np.linalg.inv(k_f(X, X, *own) + likelihood.noise.item() * np.eye(N))
        cross, bias = k_f(new, X, *own), (inverse @ Y).sum() / inverse.sum()
        expected, covariance = bias + cross @ inverse @ (Y - bias), k_f(new, new, *own) - cross @ inverse @ cross.T
        mean, variance = model.predict(torch.tensor(new))
        np.testing.assert_allclose(mean[:, 0], expected, atol=1e-8)
        np.testing.assert_allclose(variance[:, 0], covariance.diagonal(), atol=1e-8)
        np.testing.assert_allclose(model.joint(torch.tensor(new))[1][0], covariance, atol=1e-8)


def test_many_draws_lead_there() -> None:
    lengthscales, scales = FAMILIES["ARD and scales"]
    (closed, *data), (drawn, *_) = (
        model_of(rbf(*lengthscales), noise(*scales), draws, rows=3) for draws in (None, 2048)
    )
    assert [model.samples(model.x).shape[1] for model in (closed, drawn)] == [1, 2048]
    assert drawn.condition(*data).log_evidence == pytest.approx(closed.condition(*data).log_evidence, abs=2e-3)


def test_noise_of_some_columns_is_none_of_the_others() -> None:
    some, zero = noise(0.4), noise(0.4, 0.0, 0.4)
    some.columns = (0, 2)
    found, expected = (model_of(rbf(1.3, 0.7, 2.0), orbit)[0].gram() for orbit in (some, zero))
    np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-14)
    x, u = torch.tensor(X[:4]), torch.rand(4, 5, DIM, dtype=torch.float64)
    moved = some.transform(x, u) - x[:, None]
    assert (moved[..., 1] == 0).all()
    assert (moved[..., [0, 2]] != 0).all()


def test_inputs_in_single_precision_lose_little() -> None:
    kernel, orbit = rbf(1.3), noise(0.4, 0.1, 0.9).float()
    model = ExactGP(kernel, orbit, torch.tensor(X).float())
    expected = k_f(X, X, np.array([1.3]), 2.0, np.array([0.4, 0.1, 0.9]))
    np.testing.assert_allclose(model.gram(), expected, atol=2e-6)


def test_a_kernel_without_a_variance_has_a_closed_form() -> None:
    model, *_ = model_of(rbf(1.3, variance=None), noise(0.4))
    np.testing.assert_allclose(model.gram(), k_f(X, X, np.array([1.3]), 1.0, np.array([0.4])), atol=1e-12)


def test_priors_and_constraints_do_not_matter_to_the_closed_form() -> None:
    kernel = rbf(1.3, lengthscale_prior=GammaPrior(3.0, 6.0), lengthscale_constraint=Interval(0.1, 5.0))
    model, *_ = model_of(kernel, noise(0.4))
    np.testing.assert_allclose(model.gram(), k_f(X, X, np.array([1.3]), 2.0, np.array([0.4])), atol=1e-12)


class Larger(GaussianNoise):
    """An orbit of one's own: what it adds is not known."""


WITHOUT = {
    "another kernel": (ScaleKernel(MaternKernel()), noise(0.4)),
    "some columns": (rbf(1.3, active_dims=(0, 1)), noise(0.4)),
    "feature map": (FeatureMapKernel(RBFKernel(), nn.Identity()), noise(0.4)),
    "sum": (RBFKernel() + RBFKernel(), noise(0.4)),
    "composition": (rbf(1.3), noise(0.4) * Permutation.swap(0, 1, 3)),
    "own orbit": (rbf(1.3), Larger()),
}


@pytest.mark.parametrize(("kernel", "orbit"), WITHOUT.values(), ids=WITHOUT)
def test_others_are_drawn(kernel: Kernel, orbit: Orbit) -> None:
    assert closed_form(kernel, orbit) is None
    assert not ExactGP(kernel, orbit, torch.tensor(X)).is_enumerated


@pytest.fixture(scope="module")
def fitted() -> InvariantGPRegressor:
    return InvariantGPRegressor(GaussianNoise(0.3), random_state=0).fit(X, Y)


class TestEstimators:
    def test_the_evidence_has_no_draws(self, fitted: Any) -> None:
        assert fitted.evidence_.num_samples is None
        assert fitted.evidence_.stderr == 0.0
        assert "S =" not in str(fitted.evidence_)
        assert fitted.converged_
        base, unit = fitted.kernel_.base_kernel, Y.std()
        learned = (
            np.array([base.lengthscale.item()]),
            fitted.kernel_.outputscale.item(),
            fitted.orbit_.scale.detach().numpy(),
        )
        formula = log_evidence(
            k_f(X, X, *learned), (Y - Y.mean()) / unit, fitted.likelihood_.noise.item()
        ) - N * np.log(unit)
        assert fitted.evidence_.value == pytest.approx(formula, abs=0.01)

    def test_draws_that_are_asked_for_are_not_needed(self, fitted: Any) -> None:
        asked = InvariantGPRegressor(GaussianNoise(0.3), num_samples=8, random_state=0).fit(X, Y)
        assert asked.evidence_.num_samples is None
        assert asked.evidence_.value == fitted.evidence_.value

    def test_no_orbit_is_no_worse(self, fitted: Any) -> None:
        """Noise makes the RBF kernel an RBF kernel again: of three parameters, two matter."""
        plain = InvariantGPRegressor(random_state=0).fit(X, Y)
        assert fitted.evidence_.value == pytest.approx(plain.evidence_.value, abs=0.1)

    def test_pickles_and_files_predict_the_same(self, fitted: Any, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model.safetensors")
        for other in (pickle.loads(pickle.dumps(fitted)), InvariantGPRegressor.load(tmp_path / "model.safetensors")):
            for found, expected in zip(
                other.predict(X, return_std=True), fitted.predict(X, return_std=True), strict=True
            ):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_irises_do_not_prefer_noise() -> None:
    irises = load_iris()
    some = np.random.default_rng(10).permutation(150)[:60]
    x, first = np.unique(((irises.data - irises.data.mean(0)) / irises.data.std(0))[some], axis=0, return_index=True)
    result = compare(x, irises.target[some][first], {"none": None, "noise": GaussianNoise(0.3)}, likelihood="gaussian")
    none, noisy = (result.models[name].evidence_ for name in ("none", "noise"))
    assert noisy.value == pytest.approx(none.value, abs=0.1)
    assert noisy.num_samples is None
    assert not any(row.certain for row in result.rows if row.behind)
