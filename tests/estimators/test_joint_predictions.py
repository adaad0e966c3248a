"""Covariances and draws of new observations: against scikit-learn without an orbit, and brute force with a finite
one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel
from numpy.testing import assert_allclose
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.likelihoods import Gaussian, StudentT
from orbitgp.orbits import GaussianNoise, Permutation

VARIANCE, LENGTHSCALE, NOISE = 1.25, 0.875, 0.0625  # which single precision holds
NEW = np.random.default_rng(1).uniform(-2, 2, (6, 2))

pytestmark = pytest.mark.usefixtures("one_start")


def data(rows: int = 25) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(X[:, 0] + X[:, 1]) + 0.2 * rng.normal(size=rows)


def frozen(orbit: Any = None, outputs: int = 1, **settings: Any) -> InvariantGPRegressor:
    """A regressor that learns nothing but the posterior: its kernel and noise are those of the reference."""
    kernel, likelihood = ScaleKernel(RBFKernel()).double(), Gaussian(outputs, noise=NOISE, min_noise=1e-9)
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    for module in (kernel, likelihood):
        module.requires_grad_(False)
    given = {"mean": "zero", "normalize_y": False, "random_state": 0}
    return InvariantGPRegressor(orbit, kernel, likelihood=likelihood, **{**given, **settings})


def reference() -> GaussianProcessRegressor:
    """The noise is part of its kernel, so that its predictions are of new observations as ours are."""
    return GaussianProcessRegressor(VARIANCE * RBF(LENGTHSCALE) + WhiteKernel(NOISE), alpha=0, optimizer=None)


@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_covariances_without_an_orbit_are_scikit_learns(inference: str) -> None:
    X, y = data()
    training = TrainingOptions(jitter=1e-9) if inference == "sparse" else None
    model = frozen(inference=inference, training=training).fit(X, y)
    mean, covariance = model.predict(NEW, return_cov=True)
    their_mean, theirs = reference().fit(X, y).predict(NEW, return_cov=True)
    assert_allclose(mean, their_mean, atol=1e-4)
    assert_allclose(covariance, theirs, atol=1e-4)
    assert_allclose(np.sqrt(covariance.diagonal()), model.predict(NEW, return_std=True)[1], rtol=1e-6)


def test_covariances_of_a_finite_orbit_are_those_of_its_averaged_kernel() -> None:
    X, y = data()

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The mean over all four pairs of a swap and the identity."""
        pairs = [(p, q) for p in (a, a[:, ::-1]) for q in (b, b[:, ::-1])]
        return VARIANCE * np.mean(
            [np.exp(-0.5 * np.square(p[:, None] - q).sum(-1) / LENGTHSCALE**2) for p, q in pairs], 0
        )

    solved = np.linalg.solve(k(X, X) + NOISE * np.eye(len(X)), k(X, NEW))
    mean, covariance = frozen(Permutation.swap(0, 1)).fit(X, y).predict(NEW, return_cov=True)
    assert_allclose(mean, y @ solved, rtol=1e-8)
    assert_allclose(covariance, k(NEW, NEW) - k(NEW, X) @ solved + NOISE * np.eye(len(NEW)), atol=1e-10)


@pytest.mark.parametrize("normalize", [False, True])
def test_covariances_of_several_outputs(normalize: bool) -> None:
    X, y = data()
    both = np.stack([y, 5 - 10 * y], 1)
    model = frozen(outputs=2, normalize_y=normalize).fit(X, both)
    mean, covariance = model.predict(NEW, return_cov=True)
    assert mean.shape == (6, 2)
    assert covariance.shape == (6, 6, 2)
    assert_allclose(np.sqrt(np.einsum("nnl->nl", covariance)), model.predict(NEW, return_std=True)[1])
    their = reference().set_params(normalize_y=normalize).fit(X, both).predict(NEW, return_cov=True)[1]
    assert_allclose(covariance, their, atol=1e-6 * np.abs(their).max())


def test_draws_without_an_orbit_have_scikit_learns_moments() -> None:
    X, y = data()
    model = InvariantGPRegressor(random_state=0, max_steps=3).fit(X, 1000 * y)
    mean, covariance = model.predict(NEW, return_cov=True)
    count = 1_000
    draws = model.sample_y(NEW, count, random_state=3)
    assert draws.shape == (6, count)
    errors = (draws - mean[:, None]) / np.sqrt(covariance.diagonal())[:, None]
    assert (np.abs(errors.mean(1)) < 4 / np.sqrt(count)).all()
    products = errors[:, None] * errors
    expected = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    assert (np.abs(products.mean(-1) - expected) < 4 * products.std(-1) / np.sqrt(count)).all()
    assert np.array_equal(draws, model.sample_y(NEW, count, random_state=3))
    assert not np.array_equal(draws, model.sample_y(NEW, count, random_state=4))


def test_draws_have_the_noise_of_the_likelihood_and_share_f() -> None:
    X, y = data()
    model = InvariantGPRegressor(
        GaussianNoise(0.3), likelihood=StudentT(df=3.0, scale=0.2), max_steps=3, num_samples=4, random_state=0
    ).fit(X, y)
    count = 1_000
    draws = model.sample_y(np.repeat(NEW[:1], 2, axis=0), count)
    low, high = model.predict_quantiles(NEW[:1], [0.05, 0.95])[0]
    inside = ((draws > low) & (draws < high)).mean()
    assert abs(inside - 0.9) < 4 * np.sqrt(0.09 / count)
    # Two observations at one place differ by two draws of the noise alone, which have a median of |t - t'|.
    scale, df = model.likelihood_.scale.item() * model.target_scale_[0], model.likelihood_.df.item()
    t = stats.t.rvs(df, scale=scale, size=(2, 200_000), random_state=0)
    assert np.median(np.abs(draws[0] - draws[1])) == pytest.approx(np.median(np.abs(t[0] - t[1])), rel=0.15)


def test_draws_of_several_outputs_in_their_units() -> None:
    X, y = data()
    model = frozen(outputs=2, normalize_y=True).fit(X, np.stack([y, 5 - 1000 * y], 1))
    draws = model.sample_y(NEW, 1_000)
    mean, std = model.predict(NEW, return_std=True)
    assert draws.shape == (6, 2, 1_000)
    assert (np.abs(draws.mean(-1) - mean) < 4 * std / np.sqrt(1_000)).all()
    assert_allclose(draws.std(-1), std, rtol=0.1)


def test_few_rows_widen_covariances_and_draws_as_they_widen_intervals() -> None:
    X, y = data(4)
    with pytest.warns(UserWarning, match="few rows"):
        model = frozen().fit(X, y)
    _, std = model.predict(NEW, return_std=True)
    assert_allclose(np.sqrt(model.predict(NEW, return_cov=True)[1].diagonal()), std)
    assert_allclose(model.sample_y(NEW, 1_000).std(1), std, rtol=0.1)


def test_arrays_on_disk(tmp_path: Any) -> None:
    X, y = data()
    np.save(tmp_path / "new.npy", NEW)
    model = frozen().fit(X, y)
    on_disk = np.load(tmp_path / "new.npy", mmap_mode="r")
    assert_allclose(model.predict(on_disk, return_cov=True)[1], model.predict(NEW, return_cov=True)[1])


def test_bad_requests() -> None:
    X, y = data()
    model = frozen().fit(X, y)
    with pytest.raises(ValueError, match="leave out return_std or return_cov"):
        model.predict(NEW, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match="n_samples must be at least 1, got 0"):
        model.sample_y(NEW, 0)
