"""Every problem that once ended badly, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits import Brightness, GaussianNoise, Permutation, Rotation

SMALL: dict[str, Any] = {"max_steps": 4, "num_samples": 4, "random_state": 0}


def within_ten_ranges(model: Any, X: np.ndarray, y: np.ndarray) -> bool:
    return bool((np.abs(model.predict(X) - y.mean()) < 10 * np.ptp(y)).all())


def test_duplicates_do_not_stop_the_choice_of_the_concentration():
    """A raw Cholesky error, where rows are equal and the noise of a class is small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 2))[np.arange(60) % 2] * (1 + 1e-9 * rng.normal(size=(60, 2)))
    y = np.arange(60) % 3
    model = InvariantGPClassifier(likelihood="dirichlet", **SMALL).fit(1e8 * X, y)
    assert np.isfinite(model.predict_proba(1e8 * X)).all()


def test_prediction_with_inducing_points_that_a_swap_makes_equal():
    """A raw Cholesky error at prediction: swapped points are the same point, and a tiny jitter does not tell them apart."""
    X = np.array([[0.0, 1.0], [1.0, 0.0]] * 4)
    options = TrainingOptions(jitter=1e-20, inducing_samples=2, inducing_rate=0.0)
    model = InvariantGPRegressor(Permutation.swap(0, 1), inference="sparse", num_inducing=4, training=options, **SMALL)
    y = np.arange(8.0)
    assert within_ten_ranges(model.fit(X, y), X, y)


def test_jitter_need_not_be_raised_by_hand():
    """ "raise jitter" on a legitimate problem: Student-t, brightness, gradients, more points than images."""
    images = np.repeat(np.random.default_rng(0).random((3, 5, 5)), 2, axis=0)
    options = TrainingOptions(jitter=1e-20, optimizer="adam")
    model = InvariantGPRegressor(
        Brightness(), likelihood="student-t", feature_map=OrientedGradients(), num_inducing=14, training=options, **SMALL
    )
    y = np.arange(6.0)
    assert within_ten_ranges(model.fit(images, y), images, y)


@pytest.mark.parametrize("inducing_samples", [1, 3])
@pytest.mark.parametrize("num_inducing", [1, 17])
@pytest.mark.filterwarnings("ignore:the columns of X spread")
def test_a_linear_mean_has_the_units_of_what_it_sees(num_inducing, inducing_samples):
    """A prediction a hundred times beyond all targets: one inducing point does not tell how far apart inputs are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) * [1e-4, 1.0, 1e4]
    y = np.sin(X[:, 1])
    options = TrainingOptions(inducing_samples=inducing_samples, num_predict_samples=2)
    for scale in (1.0, 1e-6):
        noise = InvariantGPRegressor(GaussianNoise(), mean="linear", num_inducing=num_inducing, training=options, **SMALL)
        assert within_ten_ranges(noise.fit(scale * X, y), scale * X, y)


@pytest.mark.filterwarnings("ignore:the border of these images")
def test_images_of_two_pixels():
    """An evidence that is not finite: gradients of an image without any, and a likelihood of several decisions."""
    images = np.random.default_rng(0).random((12, 1, 2)) * 1e-8
    model = InvariantGPClassifier(
        Rotation(), likelihood="stick-breaking", feature_map=OrientedGradients(), num_inducing=5, **SMALL
    )
    assert np.isfinite(model.fit(images, np.arange(12) % 3).evidence_.value)


@pytest.mark.filterwarnings("ignore:the border of these images")
def test_images_far_from_zero_and_many_lengthscales_apart():
    """An infinite covariance: in single precision, distances from products were all rounding."""
    images = 32_000 + np.random.default_rng(0).random((4, 4, 8))
    model = InvariantGPRegressor(Rotation(), ScaleKernel(RBFKernel()), mean="linear", inference="exact", **SMALL)
    assert np.isfinite(model.fit(images, np.arange(4.0)).evidence_.value)


def test_nearly_equal_rows_whose_swaps_are_far_apart():
    rng = np.random.default_rng(0)
    X = 1e7 * rng.normal(size=(2, 3))[np.arange(8) % 2] * (1 + 1e-9 * rng.normal(size=(8, 3)))
    model = InvariantGPClassifier(Permutation.swap(0, 1), inference="exact", **SMALL).fit(X, np.arange(8) % 2)
    assert np.isfinite(model.evidence_.value)


def test_robust_likelihoods_in_large_units():
    """The least precision of a datum was absolute, so targets of many thousands were taken for none at all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 2))
    y = 4e6 + 1e4 * np.sin(X[:, 0])
    model = InvariantGPRegressor(likelihood="student-t", inference="exact", normalize_y=False, **SMALL)
    assert within_ten_ranges(model.fit(X, y), X, y)


def test_the_mean_learns_in_the_units_of_the_targets():
    """Adam moved the constant of the mean by 0.03 a step, whatever the targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 2))
    y = 1e-8 * np.sin(X[:, 0])
    options = TrainingOptions(optimizer="adam")
    model = InvariantGPRegressor(likelihood="laplace", num_inducing=5, normalize_y=False, training=options, **SMALL)
    assert within_ten_ranges(model.fit(X, y), X, y)


@pytest.mark.parametrize("scale", [1e-8, 1e6])
def test_a_target_that_does_not_vary_has_its_own_size_for_a_unit(scale):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = InvariantGPRegressor(likelihood="student-t", num_inducing=5, **SMALL).fit(X, np.full(20, scale))
    assert np.abs(model.predict(X) / scale - 1).max() < 1


def test_a_huge_group_is_refused():
    """A file could ask for a group of 12! permutations, and for days of work."""
    with pytest.raises(ValueError, match="more than 100,000 elements"):
        Permutation([[*range(1, 12), 0], [1, 0, *range(2, 12)]], close=True)
