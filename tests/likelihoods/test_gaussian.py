"""Noise that depends on the inputs: against scikit-learn with the same variances, and by its coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.likelihoods import HeteroscedasticGaussian


def steps(seed: int, rows: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of a sine; the noise of the right half is larger."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, (rows, 1))
    return x, np.sin(6 * x[:, 0]) + np.where(x[:, 0] < 0.5, 0.1, 0.1 * ratio) * rng.normal(size=rows)


def variances(model: InvariantGPRegressor, x: np.ndarray) -> np.ndarray:
    """The noise at these inputs in the units of y, by the formula of the module."""
    likelihood = model.likelihood_
    z, length = likelihood.centres.numpy(), likelihood.lengthscale

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * np.square((a[:, None] - b) / length).sum(-1))

    root = np.linalg.solve(np.linalg.cholesky(k(z, z) + 1e-10 * np.eye(len(z))), k(z, x))
    h = likelihood.weights.detach().numpy() @ root
    return (np.exp(likelihood.log_noise.item() + h) + likelihood.min_noise) * model.target_scale_[0] ** 2


@pytest.mark.usefixtures("one_start")
@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_given_the_noise_it_is_scikit_learns_regressor(inference: str) -> None:
    x, y = steps(0, 60, 3.0)
    training = TrainingOptions(jitter=1e-9) if inference == "sparse" else None
    centres = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    model = InvariantGPRegressor(
        likelihood=HeteroscedasticGaussian(centres=centres, lengthscale=0.2),
        mean="zero", normalize_y=False, inference=inference, training=training, max_steps=15, random_state=0,
    ).fit(x, y)  # fmt: skip
    assert model.likelihood_.weights.abs().max() > 0.1
    kernel = model.kernel_.outputscale.item() * RBF(model.kernel_.base_kernel.lengthscale.item())
    same = GaussianProcessRegressor(kernel, alpha=variances(model, x), optimizer=None).fit(x, y)
    new = np.linspace(-0.2, 1.2, 9)[:, None]
    mean, std = model.predict(new, return_std=True)
    their_mean, their_covariance = same.predict(new, return_cov=True)
    assert_allclose(mean, their_mean, atol=1e-3)
    expected = their_covariance + np.diag(variances(model, new))
    assert_allclose(std, np.sqrt(expected.diagonal()), atol=1e-3)
    assert_allclose(model.predict(new, return_cov=True)[1], expected, atol=1e-3)
    assert model.evidence_.value == pytest.approx(same.log_marginal_likelihood_value_, abs=0.05)
    draws = model.sample_y(new, 4000)
    assert_allclose(draws.std(1), std, rtol=0.06)


@pytest.mark.usefixtures("one_start")
@pytest.mark.slow
def test_intervals_cover_on_both_halves() -> None:
    """On average over four data sets; a single noise covers nearly everything on the left, and 80 % on the right."""
    rows, ratio = 100, 3.0
    new, truth = steps(100, 4000, ratio)
    left = new[:, 0] < 0.5
    inside: list[Any] = []
    plain: list[Any] = []
    for seed in range(4):
        for likelihood, found in (("heteroscedastic", inside), ("gaussian", plain)):
            model = InvariantGPRegressor(likelihood=likelihood, random_state=0).fit(*steps(seed, rows, ratio))
            low, high = model.predict_quantiles(new, [0.05, 0.95]).T
            covered = (low < truth) & (truth < high)
            found.append([covered[left].mean(), covered[~left].mean()])
    assert (np.abs(np.mean(inside, 0) - 0.9) < 0.05).all(), np.mean(inside, 0)
    assert np.mean(plain, 0)[0] > 0.97
    assert np.mean(plain, 0)[1] < 0.85


@pytest.mark.usefixtures("one_start")
def test_equal_noise_stays_about_equal() -> None:
    x, y = steps(0, 200, 1.0)
    model = InvariantGPRegressor(likelihood="heteroscedastic", random_state=0).fit(x, y)
    assert_allclose(np.sqrt(variances(model, np.linspace(0, 1, 20)[:, None])), 0.1, rtol=0.4)


def test_gradients() -> None:
    likelihood = HeteroscedasticGaussian(2, centres=torch.randn(4, 3, dtype=torch.float64))
    x, f = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    known = torch.tensor([[2.0, 0.1]], dtype=torch.float64).expand(6, -1)
    y = torch.cat([torch.randn(6, 2, dtype=torch.float64), known, likelihood.features(x)], 1)

    def value(weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(likelihood, {"weights": weights}, (y, f))

    likelihood.forward = likelihood.log_prob
    assert torch.autograd.gradcheck(value, (torch.randn(4, dtype=torch.float64, requires_grad=True),))
    quadratic = likelihood.quadratic(y)
    by_hand = quadratic.const + (quadratic.eta * f - 0.5 * quadratic.lam * f**2).sum(-1)
    torch.testing.assert_close(by_hand, likelihood.log_prob(y, f))


def test_features_are_white_under_their_kernel() -> None:
    """The covariance of h at the centres is k(Z, Z), so that w ~ N(0, I) makes h a Gaussian process."""
    likelihood = HeteroscedasticGaussian()
    x = torch.randn(50, 2, dtype=torch.float64)
    likelihood.prepare(x)
    z = likelihood.centres
    features = likelihood.features(z)
    expected = torch.exp(-0.5 * (torch.cdist(z, z) / likelihood.lengthscale).square())
    torch.testing.assert_close(features @ features.mT, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("values", [1, 2])
def test_inputs_of_few_values(values: int) -> None:
    x = (np.arange(40) % values == 0).astype(float)[:, None]
    x[:30] = x[0]
    model = InvariantGPRegressor(likelihood="heteroscedastic", max_steps=5, random_state=0).fit(x, steps(0, 40, 1.0)[1])
    assert np.isfinite(model.predict(x, return_std=True)).all()


def test_saved_and_loaded(tmp_path: Any) -> None:
    x, y = steps(0, 40, 3.0)
    model = InvariantGPRegressor(likelihood="heteroscedastic", max_steps=5, random_state=0).fit(
        x, y, np.linspace(1, 2, 40)
    )
    model.save(tmp_path / "model")
    loaded = InvariantGPRegressor.load(tmp_path / "model")
    for ours, theirs in zip(loaded.predict(x, return_std=True), model.predict(x, return_std=True), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    given = InvariantGPRegressor(likelihood=HeteroscedasticGaussian(), max_steps=2, random_state=0).fit(x, y)
    given.save(tmp_path / "given")
    assert not len(InvariantGPRegressor.load(tmp_path / "given").likelihood.centres)


def test_centres_of_another_shape_are_refused() -> None:
    likelihood = HeteroscedasticGaussian(centres=torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match="have 3 features, but the inputs have 1"):
        InvariantGPRegressor(likelihood=likelihood).fit(*steps(0, 40, 3.0))


def test_data_on_disk_are_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitgp.estimators.data.LOADED_BYTES", 0)
    x, y = steps(0, 40, 3.0)
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="needs all data in memory: take likelihood='gaussian'"):
        InvariantGPRegressor(likelihood="heteroscedastic").fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
