"""The estimators: against exact Gaussian processes, and as scikit-learn's pipelines and searches use them."""

from __future__ import annotations

import pickle
from typing import Any

import gpytorch
import joblib
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, InvariantKernel, TrainingOptions
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.likelihoods import CLASSIFICATION, REGRESSION, Gaussian, GaussianIndicators, StudentT
from orbitgp.orbits import GaussianNoise, Permutation, Rotation
from tests.estimators.quick import QUICK

pytestmark = pytest.mark.usefixtures("one_start")


def wave(rng: np.random.Generator, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Noisy values of a function that is symmetric in its two inputs."""
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(X[:, 0] + X[:, 1]) + X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=rows)


def blobs(rng: np.random.Generator, rows: int = 30, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(rows) % classes
    return rng.normal(size=(rows, 2)) + 4 * np.stack([labels, labels % 2], 1), labels


def small_digits(rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    data = load_digits(n_class=3)
    return data.images[:rows] / 16, data.target[:rows]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class TestAgainstExactGaussianProcesses:
    def test_no_orbit_is_scikit_learns_regressor(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        y = 50 * y + 1000
        ours = InvariantGPRegressor(
            mean="zero", training=TrainingOptions(jitter=1e-9), max_steps=20, random_state=0
        ).fit(X, y)
        scale = ours.target_scale_[0]
        noise, variance = ours.likelihood_.noise.item(), ours.kernel_.outputscale.item()
        lengthscale = ours.kernel_.base_kernel.lengthscale.item()
        # The same hyperparameters, on the same normalised targets.
        exact = GaussianProcessRegressor(
            variance * RBF(lengthscale), alpha=noise, optimizer=None, normalize_y=True
        ).fit(X, y)
        new = rng.uniform(-2, 2, (20, 2))
        mean, std = exact.predict(new, return_std=True)
        our_mean, our_std = ours.predict(new, return_std=True)
        assert_allclose(our_mean, mean, atol=2e-3 * scale)
        assert_allclose(our_std, np.sqrt(std**2 + noise * scale**2), rtol=2e-2)
        # A lower bound, and tight: as many inducing points as data. In the units of y: each of 40 densities is 1/scale
        # as high.
        truth = exact.log_marginal_likelihood_value_ - len(y) * np.log(scale)
        assert truth - 0.1 < ours.evidence_.value <= truth + 1e-6
        assert ours.evidence_.stderr == 0.0

    @pytest.mark.slow
    def test_learned_hyperparameters_are_the_best_ones(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        ours = InvariantGPRegressor(mean="zero", training=TrainingOptions(jitter=1e-9), random_state=0).fit(X, y)
        kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
        best = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0).fit(X, y)
        truth = best.log_marginal_likelihood_value_ - len(y) * np.log(y.std())
        assert truth - 0.5 < ours.evidence_.value <= truth + 1e-6

    def test_finite_orbit_is_the_exact_invariant_kernel(self, rng: np.random.Generator) -> None:
        X, y = wave(rng, rows=25)
        swap = Permutation.swap(0, 1)
        ours = InvariantGPRegressor(
            swap, mean="zero", normalize_y=False, training=TrainingOptions(jitter=1e-9), max_steps=20, random_state=0
        ).fit(X, y)
        assert ours.model_.inducing_sets().shape == (25, 2, 2)  # both elements, so that u = f(X)
        new = rng.uniform(-2, 2, (10, 2))
        noise = ours.likelihood_.noise.item()
        with torch.no_grad():
            kernel = InvariantKernel(ours.kernel_, swap)
            x, z, t = (torch.tensor(a) for a in (X, new, y))
            root = torch.linalg.cholesky(kernel(x).to_dense() + noise * torch.eye(len(x), dtype=torch.float64))
            cross, alpha = kernel(z, x).to_dense(), torch.cholesky_solve(t[:, None], root)
            reduced = torch.linalg.solve_triangular(root, cross.mT, upper=False)
            mean, variance = (cross @ alpha)[:, 0], kernel(z, diag=True) - reduced.square().sum(0)
            exact = -0.5 * (t @ alpha[:, 0] + len(t) * np.log(2 * np.pi)) - root.diagonal().log().sum()
        our_mean, our_std = ours.predict(new, return_std=True)
        assert_allclose(our_mean, mean, atol=5e-3)
        assert_allclose(our_std, (variance + noise).sqrt(), rtol=2e-2)
        assert float(exact) - 0.1 < ours.evidence_.value <= float(exact) + 1e-6


class TestEvidence:
    @pytest.mark.slow
    def test_the_right_invariance_wins(self, rng: np.random.Generator) -> None:
        X, y = wave(rng, rows=25)
        settings: dict[str, Any] = {"max_steps": 60, "random_state": 0}
        plain = InvariantGPRegressor(**settings).fit(X, y)
        swap = InvariantGPRegressor(Permutation.swap(0, 1), **settings).fit(X, y)
        wrong = InvariantGPRegressor(Permutation([[0, 1], [0, 1]]), **settings).fit(X, y)
        assert swap.evidence_.value > plain.evidence_.value + 3
        # The identity twice over is no invariance, however many elements it has.
        assert abs(wrong.evidence_.value - plain.evidence_.value) < 1
        new, truth = wave(np.random.default_rng(1), rows=200)
        assert swap.score(new, truth) > plain.score(new, truth)
        assert_allclose(swap.predict(new), swap.predict(new[:, ::-1]), atol=1e-10)

    @pytest.mark.parametrize("factors", [(1024.0,), (2.0**-12, 2.0**7)], ids=["one output", "two outputs"])
    def test_is_in_the_units_of_the_targets(self, rng: np.random.Generator, factors: tuple[float, ...]) -> None:
        # Powers of two leave the normalised targets what they are, to the last bit: nothing but the units can differ.
        X = rng.normal(size=(30, 2))
        y = np.stack([np.sin(X[:, 0]), X[:, 1]], 1)[:, : len(factors)] + 0.1 * rng.normal(size=(30, len(factors)))
        here = InvariantGPRegressor(max_steps=10, random_state=0).fit(X, y)
        there = InvariantGPRegressor(max_steps=10, random_state=0).fit(X, y * np.array(factors))
        shift = 30 * np.log(factors).sum()
        assert_allclose(there.evidence_.value, here.evidence_.value - shift, rtol=1e-12)
        assert_allclose(there.history_[-1]["bound"], here.history_[-1]["bound"] - shift, rtol=1e-12)
        assert_allclose(there.predict(X), here.predict(X) * factors, rtol=1e-12)

    @pytest.mark.slow
    def test_does_not_depend_on_normalisation(self, rng: np.random.Generator) -> None:
        (X, y), factor = wave(rng), 1e4
        both = [
            InvariantGPRegressor(normalize_y=n, num_inducing=20, max_steps=60, random_state=0).fit(X, factor * (y + 3))
            for n in (True, False)
        ]
        assert abs(both[0].evidence_.value - both[1].evidence_.value) < 0.5
        assert_allclose(both[0].predict(X), both[1].predict(X), atol=0.02 * factor)

    def test_has_an_error_from_fresh_draws_where_the_orbit_is_sampled(self, rng: np.random.Generator) -> None:
        X, y = wave(rng, rows=20)
        fitted = InvariantGPRegressor(
            GaussianNoise(0.3), num_inducing=20, max_steps=5, num_samples=6, training=TrainingOptions(sampler="iid")
        ).fit(X, y)
        evidence = fitted.evidence_
        assert evidence.stderr > 0
        assert evidence.num_data == 20
        assert evidence.num_samples == 64
        assert evidence.likelihood == "Gaussian"

    def test_inputs_may_come_in_any_units(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        new = rng.uniform(-2, 2, (20, 2))
        settings: dict[str, Any] = {"num_inducing": 15, "max_steps": 10, "mean": "linear", "random_state": 0}
        here = InvariantGPRegressor(**settings).fit(X, y)
        for factor in (2.0**-14, 2.0**14):
            there = InvariantGPRegressor(**settings).fit(X * factor, y)
            assert there.evidence_.value == pytest.approx(here.evidence_.value, abs=0.05)
            assert_allclose(there.predict(new * factor), here.predict(new), atol=0.01)


class TestPrediction:
    @pytest.mark.parametrize(
        "orbit", [GaussianNoise(0.3), Permutation.swap(0, 1), Permutation.swap(0, 1) * GaussianNoise(0.2)]
    )
    def test_a_row_does_not_depend_on_its_company(self, rng: np.random.Generator, orbit: Any) -> None:
        X, y = wave(rng)
        fitted = InvariantGPRegressor(orbit, num_inducing=40, max_steps=5, num_samples=8, random_state=0).fit(X, y)
        mean, std = fitted.predict(X, return_std=True)
        order = rng.permutation(len(X))
        for rows in (order, order[:7], order[:1]):
            some_mean, some_std = fitted.predict(X[rows], return_std=True)
            assert_allclose(some_mean, mean[rows], rtol=1e-12, atol=1e-12)
            assert_allclose(some_std, std[rows], rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
    @pytest.mark.parametrize("orbit", [None, GaussianNoise(0.3)])
    def test_a_mean_alone_needs_no_variance(
        self, rng: np.random.Generator, orbit: Any, likelihood: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, y = wave(rng)
        fitted = InvariantGPRegressor(orbit, likelihood=likelihood, max_steps=5, random_state=0).fit(X, 100 * y)
        assert fitted.inference_ == "exact"
        mean, _ = fitted.predict(X, return_std=True)
        monkeypatch.delattr(NoisyCovariance, "explained")
        assert_allclose(fitted.predict(X), mean, rtol=1e-12, atol=1e-10)
        with pytest.raises(AttributeError):
            fitted.predict(X, return_std=True)

    def test_the_same_holds_for_images_in_single_precision(self) -> None:
        X, y = small_digits()
        fitted = InvariantGPClassifier(Rotation(20.0), **QUICK).fit(X, y)
        everything = fitted.predict_proba(X)
        assert_allclose(np.concatenate([fitted.predict_proba(row[None]) for row in X]), everything, atol=2e-5)

    def test_quantiles(self, rng: np.random.Generator) -> None:
        X, y = wave(rng, rows=60)
        fitted = InvariantGPRegressor(max_steps=60, random_state=0).fit(X, 100 * y)
        mean, std = fitted.predict(X, return_std=True)
        low, middle, high = fitted.predict_quantiles(X, [0.1, 0.5, 0.9]).T
        # Gaussian noise: the median is the mean, and the 90 % point lies 1.2816 standard deviations above it.
        assert_allclose(middle, mean, atol=1e-6 * np.abs(mean).max())
        assert_allclose(high - mean, 1.2815515655446004 * std, rtol=1e-6)
        assert_allclose(mean - low, high - mean, rtol=1e-6)

    def test_many_outputs(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        both = np.stack([y, 5 - 10 * y], 1)
        fitted = InvariantGPRegressor(max_steps=40, random_state=0).fit(X, both)
        mean, std = fitted.predict(X, return_std=True)
        assert mean.shape == std.shape == both.shape
        assert fitted.predict_quantiles(X).shape == (40, 2, 3)
        assert fitted.score(X, both) > 0.95
        # One is a linear map of the other, and normalisation makes them the same up to their sign.
        assert_allclose(5 - 10 * mean[:, 0], mean[:, 1], atol=0.2)

    @pytest.mark.parametrize("name", [name for name in REGRESSION if name != "negative-binomial"])
    def test_every_likelihood_for_regression(self, rng: np.random.Generator, name: str) -> None:
        X, y = wave(rng, rows=60)
        clean = y.copy()
        y[::10] += 30.0
        fitted = InvariantGPRegressor(likelihood=name, max_steps=60, random_state=0).fit(X, y)
        inliers = np.arange(60) % 10 != 0
        error = np.sqrt(np.mean((fitted.predict(X) - clean)[inliers] ** 2))
        # Outliers pull Gaussian noise far off; heavy tails hold on to the function.
        assert error < 1.0 if name == "student-t" else error > 2.0


@pytest.mark.usefixtures("short_ends")
class TestClassifier:
    @pytest.mark.parametrize("labels", [["b", "a", "c"], [10, -3, 7], [2.0, 1.0, 5.0]], ids=repr)
    def test_labels_of_any_type(self, rng: np.random.Generator, labels: list[Any]) -> None:
        X, y = blobs(rng)
        names = np.array(labels)[y]
        fitted = InvariantGPClassifier(max_steps=20, random_state=0).fit(X, names)
        assert_array_equal(fitted.classes_, np.unique(names))
        assert fitted.predict(X).dtype == names.dtype
        assert fitted.score(X, names) > 0.9

    @pytest.mark.parametrize(
        ("labels", "likelihood"),
        [([False, True], "auto"), (["no", "yes"], "auto"), (["no", "yes"], "bernoulli"), ([-1, 1], "dirichlet")],
    )
    def test_two_classes(self, rng: np.random.Generator, labels: list[Any], likelihood: str) -> None:
        X, y = blobs(rng, classes=2)
        names = np.array(labels)[y]
        fitted = InvariantGPClassifier(likelihood=likelihood, max_steps=20, random_state=0).fit(X, names)
        probabilities = fitted.predict_proba(X)
        assert probabilities.shape == (30, 2)
        assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
        assert_array_equal(fitted.predict(X), fitted.classes_[probabilities.argmax(1)])
        assert fitted.score(X, names) > 0.9

    @pytest.mark.parametrize("name", [name for name in CLASSIFICATION if name != "bernoulli"])
    def test_every_likelihood_for_many_classes(self, rng: np.random.Generator, name: str) -> None:
        X, y = blobs(rng)
        fitted = InvariantGPClassifier(likelihood=name, max_steps=20, random_state=0).fit(X, y)
        probabilities = fitted.predict_proba(X)
        assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
        assert (probabilities >= 0).all()
        assert fitted.score(X, y) > 0.9
        assert np.isfinite(fitted.evidence_.value)

    @pytest.mark.slow
    def test_learns_how_far_digits_may_be_turned(self) -> None:
        X, y = small_digits(60)
        fitted = InvariantGPClassifier(Rotation(5.0), num_inducing=60, max_steps=40, num_samples=8, random_state=0).fit(
            X, y
        )
        degrees = fitted.orbit_.describe()["degrees"]
        assert isinstance(degrees, float)
        assert abs(degrees - 5.0) > 0.5
        assert fitted.history_[-1]["orbit"]["degrees"] == pytest.approx(degrees, abs=2.0)
        assert fitted.score(X, y) > 0.9


@pytest.mark.usefixtures("short_ends")
class TestInputs:
    def test_images_may_be_flat_or_not(self) -> None:
        X, y = small_digits()
        flat, channel = X.reshape(len(X), -1), X[:, None]
        settings = {**QUICK, "num_inducing": 20}
        whole = InvariantGPClassifier(Rotation(), **settings).fit(X, y)
        rows = InvariantGPClassifier(Rotation(), image_shape=(8, 8), **settings).fit(flat, y)
        colour = InvariantGPClassifier(Rotation(), **settings).fit(channel, y)
        assert whole.n_features_in_ == rows.n_features_in_ == 64
        assert whole.model_.inducing.dtype == torch.float32
        expected = whole.predict_proba(X)
        assert_array_equal(whole.predict_proba(flat), expected)
        assert_array_equal(rows.predict_proba(flat), expected)
        assert_array_equal(rows.predict_proba(X), expected)
        assert_allclose(colour.predict_proba(channel), expected, atol=1e-4)

    @pytest.mark.parametrize(("dtype", "expected"), [("auto", torch.float64), ("float32", torch.float32)])
    def test_precision_of_tables(self, rng: np.random.Generator, dtype: Any, expected: torch.dtype) -> None:
        X, y = wave(rng)
        settings: dict[str, Any] = {
            **QUICK,
            "num_inducing": 30,
            "max_steps": 20,
            "training": TrainingOptions(dtype=dtype),
        }
        fitted = InvariantGPRegressor(GaussianNoise(), **settings).fit(X, y)
        assert fitted.model_.inducing.dtype == expected
        assert fitted.orbit_.scale.dtype == expected
        assert fitted.predict(X).dtype == np.float64
        assert fitted.score(X, y) > 0.9

    def test_pixels_are_left_alone(self) -> None:
        X, y = small_digits()
        fitted = InvariantGPClassifier(inference="sparse", max_steps=1, random_state=0).fit(X, y)
        assert fitted.model_.inducing.min() > -0.2
        assert fitted.model_.inducing.max() < 1.2

    def test_one_row_and_constant_targets(self) -> None:
        fitted = InvariantGPRegressor(max_steps=2, random_state=0).fit([[1.0, 2.0]], [3.0])
        assert_allclose(fitted.predict([[1.0, 2.0]]), [3.0], atol=0.1)
        constant = InvariantGPRegressor(max_steps=2, random_state=0).fit(np.arange(10.0)[:, None], np.full(10, 1e6))
        assert_allclose(constant.predict([[3.0]]), [1e6], rtol=1e-6)


@pytest.mark.usefixtures("short_ends")
class TestSettings:
    def test_copies_are_learned_not_the_arguments(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        orbit, likelihood = GaussianNoise(0.3), Gaussian(noise=0.2)
        kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2, lengthscale_prior=GammaPrior(3.0, 6.0)))
        before = joblib.hash(orbit), pickle.dumps(kernel.state_dict()), likelihood.noise.item()
        settings: dict[str, Any] = {**QUICK, "max_steps": 20}
        fitted = InvariantGPRegressor(orbit, kernel, likelihood=likelihood, **settings).fit(X, y)
        assert fitted.orbit is orbit
        assert fitted.kernel is kernel
        assert before == (joblib.hash(orbit), pickle.dumps(kernel.state_dict()), likelihood.noise.item())
        assert fitted.orbit_.scale.item() != pytest.approx(0.3, abs=1e-3)
        assert fitted.likelihood_.noise.item() != pytest.approx(0.2, abs=1e-3)
        assert isinstance(fitted.kernel_.base_kernel, MaternKernel)
        assert not torch.allclose(
            fitted.kernel_.base_kernel.lengthscale, kernel.base_kernel.lengthscale.double(), atol=1e-3
        )
        assert len(list(fitted.kernel_.named_priors())) == 1

    def test_a_given_kernel_starts_where_it_is(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        kernel = ScaleKernel(RBFKernel(lengthscale_constraint=gpytorch.constraints.Interval(0.1, 50.0)))
        kernel.base_kernel.lengthscale, kernel.outputscale = 7.0, 4.0
        fitted = InvariantGPRegressor(kernel=kernel, max_steps=1, random_state=0).fit(X, y)
        assert fitted.kernel_.base_kernel.lengthscale.item() == pytest.approx(7.0, rel=0.02)
        assert fitted.kernel_.outputscale.item() == pytest.approx(4.0, rel=0.02)
        default = InvariantGPRegressor(max_steps=1, random_state=0).fit(X, y)
        distances = np.linalg.norm(X[:, None] - X, axis=-1)[np.triu_indices(40, 1)]
        assert default.kernel_.base_kernel.lengthscale.item() == pytest.approx(np.median(distances), rel=0.02)

    def test_likelihood_objects(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        fitted = InvariantGPRegressor(likelihood=StudentT(scale=0.2, df=8.0), max_steps=2, random_state=0).fit(X, y)
        assert fitted.evidence_.likelihood == "StudentT"
        X, labels = blobs(rng)
        classifier = InvariantGPClassifier(likelihood=GaussianIndicators(3, noise=0.01), max_steps=2, random_state=0)
        assert classifier.fit(X, labels).evidence_.likelihood == "GaussianIndicators"

    @pytest.mark.parametrize(
        ("orbit", "given", "count"),
        [
            (None, None, 20),
            (None, 7, 7),
            (Permutation.swap(0, 1), 100, 40),
            (GaussianNoise(), 30, 30),
            (GaussianNoise(), None, 160),
        ],
    )
    def test_number_of_values_of_g(self, rng: np.random.Generator, orbit: Any, given: int | None, count: int) -> None:
        X, y = wave(rng, rows=20)
        settings: dict[str, Any] = {"inference": "sparse", "max_steps": 1, "num_samples": 4, "random_state": 0}
        values = TrainingOptions(inducing_samples=1)
        fitted = InvariantGPRegressor(orbit, num_inducing=given, training=values, **settings).fit(X, y)
        assert len(fitted.model_.inducing) == count
        assert fitted.model_.inducing_samples == 1

    @pytest.mark.parametrize(
        ("orbit", "given", "asked", "count", "samples"),
        [
            (None, None, None, 20, 1),
            (Permutation.swap(0, 1), 100, None, 20, 2),
            (Permutation.swap(0, 1), 5, 16, 5, 2),
            (Permutation([[1, 0, 2, 3, 4], [1, 2, 3, 4, 0]], close=True), None, None, 20, 8),
            (Permutation([[1, 0, 2, 3, 4], [1, 2, 3, 4, 0]], close=True), None, 2, 80, 2),
            (Permutation([[1, 2, 3, 4, 0]], close=True), 9999, 2, 100, 2),
            (GaussianNoise(), None, None, 20, 8),
            (GaussianNoise(), 30, 3, 30, 3),
            (GaussianNoise(), None, 2, 80, 2),
        ],
    )
    def test_number_of_averages(
        self, rng: np.random.Generator, orbit: Any, given: int | None, asked: int | None, count: int, samples: int
    ) -> None:
        X = rng.normal(size=(20, 5))
        settings: dict[str, Any] = {"inference": "sparse", "max_steps": 1, "num_samples": 4, "random_state": 0}
        averages = TrainingOptions(inducing_samples=asked)
        fitted = InvariantGPRegressor(orbit, num_inducing=given, training=averages, **settings).fit(X, X.sum(1))
        assert fitted.model_.inducing_sets().shape == (count, samples, 5)
        assert fitted.evidence_.slack is not None

    def test_inducing_points_of_a_finite_orbit_start_at_all_its_elements(self, rng: np.random.Generator) -> None:
        x, swap = torch.tensor(rng.normal(size=(20, 2))), Permutation.swap(0, 1)
        start = initial_inducing(x, swap, RBFKernel(), 40, generator=torch.Generator().manual_seed(0))
        elements = swap.elements(x).flatten(0, 1)
        assert_array_equal(np.unique(start, axis=0), np.unique(elements, axis=0))

    def test_samples_are_for_orbits_that_need_them(self, rng: np.random.Generator) -> None:
        X = rng.normal(size=(20, 3))
        y = X.sum(1)
        group = Permutation([[1, 0, 2], [1, 2, 0]], close=True)
        settings: dict[str, Any] = {"inference": "sparse", "max_steps": 3, "random_state": 0}
        whole = InvariantGPRegressor(group, **settings).fit(X, y)
        more = InvariantGPRegressor(group, num_samples=7, **settings).fit(X, y)
        fewer = InvariantGPRegressor(group, num_samples=3, **settings).fit(X, y)
        assert_array_equal(whole.predict(X), more.predict(X))
        assert not np.array_equal(whole.predict(X), fewer.predict(X))
        # Identity: even one sample is all there is.
        assert InvariantGPRegressor(num_samples=1, **settings).fit(X, y).evidence_.stderr == 0.0

    def test_budget_in_seconds(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        fitted = InvariantGPRegressor(max_steps=10**6, max_seconds=0.2, random_state=0).fit(X, y)
        last = fitted.history_[-1]
        assert last["seconds"] < 5.0
        assert last["step"] < 10**4


@pytest.mark.usefixtures("short_ends")
class TestReproducibility:
    @pytest.mark.slow
    def test_from_random_state(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)

        def run(random_state: Any) -> InvariantGPRegressor:
            return InvariantGPRegressor(GaussianNoise(), **{**QUICK, "random_state": random_state}).fit(X, y)

        first, again, state, other = run(0), run(0), run(np.random.RandomState(0)), run(1)
        assert first.evidence_ == again.evidence_ == state.evidence_ != other.evidence_
        assert_array_equal(first.predict(X), again.predict(X))
        assert_array_equal(first.predict(X), state.predict(X))
        assert not np.array_equal(first.predict(X), other.predict(X))
        # None draws from NumPy's global state, as everywhere in scikit-learn.
        np.random.seed(3)  # noqa: NPY002
        once, twice = run(None), run(None)
        np.random.seed(3)  # noqa: NPY002
        assert once.evidence_ == run(None).evidence_ != twice.evidence_

    def test_global_generators_are_left_alone(self, rng: np.random.Generator) -> None:
        X, y = blobs(rng)
        before = torch.get_rng_state(), joblib.hash(np.random.get_state())  # noqa: NPY002
        fitted = InvariantGPClassifier(GaussianNoise(), likelihood="dirichlet", **QUICK).fit(X, y)
        fitted.predict_proba(X)
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == joblib.hash(np.random.get_state())  # noqa: NPY002


@pytest.mark.usefixtures("short_ends")
class TestInScikitLearn:
    def test_pickle_and_clone(self, rng: np.random.Generator) -> None:
        X, y = blobs(rng)
        fitted = InvariantGPClassifier(GaussianNoise(0.2), **QUICK).fit(X, np.array(["a", "b", "c"])[y])
        again = pickle.loads(pickle.dumps(fitted))
        assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.evidence_ == fitted.evidence_
        fresh = clone(fitted)
        assert not hasattr(fresh, "model_")
        assert fresh.orbit.scale.item() == pytest.approx(0.2)
        assert joblib.hash(fresh.orbit) == joblib.hash(fitted.orbit)
        assert fresh.fit(X, y).evidence_ == fitted.evidence_

    @pytest.mark.slow
    def test_pipeline_and_grid_search(self, rng: np.random.Generator) -> None:
        X, y = wave(rng, rows=30)
        pipeline = make_pipeline(StandardScaler(), InvariantGPRegressor(max_steps=5, random_state=0))
        orbits = [None, Permutation.swap(0, 1)]
        grid = {"invariantgpregressor__orbit": orbits, "invariantgpregressor__num_inducing": [np.int64(20)]}
        search = GridSearchCV(pipeline, grid, cv=2).fit(100 * X, y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert search.best_estimator_[-1].evidence_.num_data == 30
        assert search.score(100 * X, y) > 0.9

    def test_learned_orbit_can_start_another_fit(self, rng: np.random.Generator) -> None:
        X, y = wave(rng)
        first = InvariantGPRegressor(GaussianNoise(0.3), **QUICK).fit(X, y)
        second = InvariantGPRegressor(first.orbit_, first.kernel_, **QUICK).fit(X, y)
        assert second.orbit_.scale.item() != first.orbit_.scale.item()
        assert all(parameter.grad is None for parameter in first.model_.parameters())
