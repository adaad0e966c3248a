"""What scikit-learn's users look for: the log marginal likelihood by its name, and a kernel that prints what was
learned."""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.orbits import Permutation


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (30, 2))
    return X, np.sin(X[:, 0] + X[:, 1]) + 0.2 * rng.normal(size=30)


def test_the_log_marginal_likelihood_is_scikit_learns(data: tuple[np.ndarray, np.ndarray]) -> None:
    model = InvariantGPRegressor(mean="zero", normalize_y=False, max_steps=5, random_state=0).fit(*data)
    kernel, noise = model.kernel_, model.likelihood_.noise.item()
    same = kernel.outputscale.item() * RBF(kernel.base_kernel.lengthscale.item()) + WhiteKernel(noise)
    truth = GaussianProcessRegressor(same, alpha=0, optimizer=None).fit(*data)
    assert model.log_marginal_likelihood() == pytest.approx(truth.log_marginal_likelihood(), abs=1e-6)
    assert model.log_marginal_likelihood_value_ == pytest.approx(truth.log_marginal_likelihood_value_, abs=1e-6)


def test_the_log_marginal_likelihood_of_a_finite_orbit(data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data
    model = InvariantGPRegressor(Permutation.swap(0, 1), mean="zero", max_steps=5, random_state=0).fit(X, 100 * y)
    variance, lengthscale = model.kernel_.outputscale.item(), model.kernel_.base_kernel.lengthscale.item()
    orbits = np.stack([X, X[:, ::-1]], 1)
    squares = np.square(orbits[:, None, :, None] - orbits[None, :, None]).sum(-1)
    covariance = variance * np.exp(-0.5 * squares / lengthscale**2).mean(
        (2, 3)
    ) + model.likelihood_.noise.item() * np.eye(30)
    covariance *= np.square(100 * y.std())  # in the units of y
    centred = 100 * (y - y.mean())
    fit = centred @ np.linalg.solve(covariance, centred)
    expected = -0.5 * (fit + np.linalg.slogdet(covariance)[1] + 30 * np.log(2 * np.pi))
    assert model.log_marginal_likelihood() == pytest.approx(expected, abs=1e-6)


def test_the_log_marginal_likelihood_of_a_classifier_and_of_a_loaded_model(data: Any, tmp_path: Any) -> None:
    X, y = data
    model = InvariantGPClassifier(max_steps=3, random_state=0).fit(X, y > 0)
    assert model.log_marginal_likelihood() == model.log_marginal_likelihood_value_ == model.evidence_.value
    model.save(tmp_path / "model")
    assert InvariantGPClassifier.load(tmp_path / "model").log_marginal_likelihood() == model.evidence_.value
    with pytest.raises(NotFittedError):
        clone(model).log_marginal_likelihood()
    assert not hasattr(clone(model), "log_marginal_likelihood_value_")


def test_a_kernel_prints_what_it_learned(data: Any, tmp_path: Any) -> None:
    model = InvariantGPRegressor(max_steps=3, random_state=0).fit(*data)
    kernel = model.kernel_
    printed = repr(kernel)
    assert f"outputscale={kernel.outputscale.item():.4f}" in printed
    assert f"lengthscale={kernel.base_kernel.lengthscale.item():.4f}" in printed
    model.save(tmp_path / "model")
    loaded = InvariantGPRegressor.load(tmp_path / "model")
    assert repr(loaded.kernel_) == repr(pickle.loads(pickle.dumps(model)).kernel_) == printed
    # A copy prints its own values, and may be fitted and saved again.
    copy = deepcopy(kernel)
    copy.outputscale = 1234.0
    assert "outputscale=1234." in repr(copy)
    assert repr(kernel) == printed
    again = InvariantGPRegressor(kernel=copy, max_steps=1, random_state=0).fit(*data)
    again.save(tmp_path / "again")
    assert repr(InvariantGPRegressor.load(tmp_path / "again").kernel_) == repr(again.kernel_)


def test_sums_and_lengthscales_of_columns_print_their_values(data: Any) -> None:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)) + PeriodicKernel()
    printed = repr(InvariantGPRegressor(kernel=kernel, max_steps=1, random_state=0).fit(*data).kernel_)
    assert printed.count("lengthscale=[") == 1
    assert "period_length=" in printed
    assert "lengthscale" not in repr(kernel).replace("raw_lengthscale_constraint", "")  # the user's own is as it was
