"""Bad input to the estimators: one clear sentence, a ValueError or TypeError, and nothing half-done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from sklearn.exceptions import NotFittedError
from torch import nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.likelihoods import Bernoulli, Gaussian
from orbitgp.orbits import FiniteOrbit, Flip, GaussianNoise, Orbit, Permutation, Rotate90, Rotation
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

X = np.random.default_rng(0).normal(size=(12, 4))
y = X.sum(1)
labels = np.arange(12) % 3
images = np.random.default_rng(0).uniform(size=(12, 4, 4))
with_nan = np.where(np.arange(12) == 3, np.nan, y)
group = Permutation([[1, 0, 2, 3], [1, 2, 3, 0]], close=True)  # 24 elements

DATA = [
    ("NaN in X", X * np.nan, y, ValueError, "Input X contains NaN"),
    ("infinity in X", np.where(X > 1, np.inf, X), y, ValueError, "Input X contains infinity"),
    ("NaN in images", images * np.nan, y, ValueError, "Input X contains NaN"),
    ("NaN in y", X, with_nan, ValueError, "y contains NaN"),
    ("huge X", X * 1e300, y, ValueError, "distances between such inputs are infinite: take a larger unit"),
    ("no rows", X[:0], y[:0], ValueError, "0 sample"),
    ("no columns", X[:, :0], y, ValueError, "0 feature"),
    ("no images", images[:0], y[:0], ValueError, "0 sample"),
    ("one dimension", y, y, ValueError, "Reshape your data"),
    ("five dimensions", images[:, None, None], y, ValueError, r"X must have shape \(N, H, W\) or \(N, C, H, W\)"),
    ("fewer targets than rows", X, y[:-1], ValueError, "inconsistent numbers of samples"),
    ("fewer targets than images", images, y[:-1], ValueError, "inconsistent numbers of samples"),
    ("no targets", X, None, ValueError, "requires y to be passed"),
    ("sparse X", scipy.sparse.csr_array(X), y, TypeError, "Sparse data was passed for X, but dense data is required"),
    ("complex X", X * 1j, y, ValueError, "Complex data not supported"),
    ("words in X", np.full((12, 4), "word"), y, ValueError, "could not convert string to float"),
    ("rows of different lengths", [[1.0, 2.0], [3.0]], [1.0, 2.0], ValueError, "inhomogeneous"),
]
REGRESSION_DATA = [
    ("words in y", X, np.full(12, "word"), ValueError, "a regression are numbers .*: take InvariantGPClassifier"),
    ("sparse y", X, scipy.sparse.csr_array(X), TypeError, "y must be a dense array"),
    ("three-dimensional y", X, np.zeros((12, 2, 2)), ValueError, "dim 3"),
]
CLASSIFICATION_DATA = [
    ("one class", X, np.zeros(12), ValueError, "at least two classes, got one class: 0"),
    ("one class, in words", X, np.full(12, "yes"), ValueError, "at least two classes, got one class: .*yes"),
    ("real targets", X, y, ValueError, "Unknown label type: continuous"),
    (
        "labels of two types",
        X,
        np.array(["a", 1] * 6, dtype=object),
        ValueError,
        "labels of several types, int, str: make",
    ),
    ("indicator targets", X, np.eye(12), ValueError, "should be a 1d array"),
]


class Still(Orbit):
    """Forgets that there are several samples of each input."""

    num_draws = 1

    def transform(self, x: Any, u: Any) -> Any:
        return x


class NoNumbers(Orbit):
    """Divides by zero."""

    num_draws = 1

    def transform(self, x: Any, u: Any) -> Any:
        return x[:, None] + (u - u) / (u - u)


class TwoOfThree(FiniteOrbit):
    """Says that it has three elements, and gives two."""

    size = 3

    def elements(self, x: Any) -> Any:
        return torch.stack([x, -x], 1)


SETTINGS = [
    ({"orbit": Still()}, ValueError, r"shape \(4,\) have the shape \(2, 3, 4\), but Still.transform gives \(2, 4\)"),
    ({"orbit": NoNumbers()}, ValueError, "NoNumbers.transform takes the first inputs to numbers that are not finite"),
    ({"orbit": TwoOfThree()}, ValueError, r"have the shape \(2, 3, 4\), but TwoOfThree.elements gives \(2, 2, 4\)"),
    ({"feature_map": nn.Dropout(0.5)}, ValueError, r"Dropout takes an input alone to other numbers .* with .eval\(\)"),
    ({"feature_map": nn.BatchNorm1d(4)}, ValueError, "BatchNorm1d cannot be evaluated"),
    ({"orbit": 3}, TypeError, "orbit must be an orbitgp.orbits.Orbit, its name or None, got int"),
    (
        {"orbit": GaussianNoise},
        TypeError,
        r"orbit must be an instance, got the class GaussianNoise: write GaussianNoise\(...\)",
    ),
    ({"orbit": Rotation()}, ValueError, "Rotation acts on images .* set image_shape"),
    ({"orbit": Permutation.swap(0, 5)}, ValueError, "Permutation acts on vectors of at least 6 coordinates"),
    (
        {"orbit": GaussianNoise(num_features=3)},
        ValueError,
        "GaussianNoise has 3 scales, but the inputs have 4 features",
    ),
    (
        {"orbit": Flip(), "image_shape": (3, 3)},
        ValueError,
        r"image_shape=\(3, 3\) holds 9 pixels, but X has 4 features",
    ),
    ({"orbit": Rotate90(), "image_shape": (1, 4)}, ValueError, "Rotate90 needs square images"),
    ({"image_shape": (4,)}, ValueError, r"image_shape must be \(H, W\) or \(C, H, W\)"),
    ({"image_shape": 4}, ValueError, r"image_shape must be \(H, W\) or \(C, H, W\)"),
    ({"image_shape": (2.0, 2.0)}, ValueError, r"image_shape must be \(H, W\) or \(C, H, W\)"),
    (
        {"orbit": GaussianNoise(), "num_samples": 1},
        ValueError,
        "num_samples must be a positive multiple of num_groups=2, got 1",
    ),
    ({"orbit": GaussianNoise(), "num_samples": 9}, ValueError, "positive multiple of num_groups=2, got 9"),
    ({"orbit": group, "num_samples": 1}, ValueError, "num_samples must be at least 2 for an orbit of 24 elements"),
    ({"kernel": "rbf"}, TypeError, "kernel must be a gpytorch.kernels.Kernel or None, got str"),
    ({"kernel": RBFKernel}, TypeError, r"kernel must be an instance, got the class RBFKernel: write RBFKernel\(...\)"),
    (
        {"kernel": ScaleKernel(RBFKernel(ard_num_dims=3))},
        ValueError,
        "lengthscales for 3 features, but the inputs have 4",
    ),
    ({"kernel": RBFKernel(active_dims=(0, 9))}, ValueError, "the kernel cannot be evaluated on inputs of 4 features"),
    ({"kernel": RBFKernel(batch_shape=(2,))}, ValueError, "the kernel must be of one output"),
    ({"likelihood": "cauchy"}, ValueError, "one of .*got 'cauchy'"),
    ({"likelihood": None}, TypeError, "likelihood must be a name or a likelihood"),
    ({"mean": "quadratic"}, ValueError, "mean must be one of zero, constant, linear, got 'quadratic'"),
    ({"num_inducing": 0}, ValueError, "num_inducing must be at least 1, got 0"),
    ({"num_inducing": 3.5}, TypeError, "num_inducing must be a whole number, got 3.5"),
    ({"num_samples": -2}, ValueError, "num_samples must be at least 1, got -2"),
    ({"batch_size": True}, TypeError, "batch_size must be a whole number, got True"),
    ({"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
    ({"max_seconds": -1.0}, ValueError, "max_seconds must be positive and finite, got -1.0"),
    ({"max_seconds": np.nan}, ValueError, "max_seconds must be positive and finite, got nan"),
    ({"max_seconds": "1"}, TypeError, "max_seconds must be a number, got '1'"),
    ({"training": {"jitter": 1e-5}}, TypeError, "training must be an orbitgp.TrainingOptions or None, got dict"),
    ({"training": TrainingOptions}, TypeError, r"got the class TrainingOptions: write TrainingOptions\(...\)"),
    (
        {"training": TrainerSettings()},
        TypeError,
        "training must be an orbitgp.TrainingOptions or None, got TrainerSettings",
    ),
    ({"device": "abacus"}, ValueError, "device 'abacus' cannot be used"),
    ({"device": "meta:x"}, ValueError, "device 'meta:x' cannot be used"),
    ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
]
REGRESSION_SETTINGS = [
    ({"likelihood": "bernoulli"}, ValueError, "a likelihood for regression is one of .*got 'bernoulli'"),
    ({"likelihood": Gaussian(2)}, ValueError, "the likelihood has 2 latent functions, but y has 1 outputs"),
    ({"likelihood": Bernoulli()}, TypeError, "likelihood must be a name or a likelihood for regression"),
]
CLASSIFICATION_SETTINGS = [
    ({"likelihood": "bernoulli"}, ValueError, "the bernoulli likelihood is for 2 classes, got 3"),
    ({"likelihood": Bernoulli()}, ValueError, "the likelihood has 2 classes, but y has 3"),
    ({"likelihood": Gaussian()}, TypeError, "likelihood must be a name or a likelihood for classification"),
]


def as_table(kind: type, data: list[Any], settings: list[Any]) -> list[Any]:
    good = labels if kind is InvariantGPClassifier else y
    rows = [pytest.param(kind, {}, inputs, bad, error, match, id=f"{kind.__name__}-{name}")
            for name, inputs, bad, error, match in data]  # fmt: skip
    rows += [pytest.param(kind, given, X, good, error, match, id=f"{kind.__name__}-{given!r}"[:90])
             for given, error, match in settings]  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("kind", "settings", "inputs", "targets", "error", "match"),
    [
        *as_table(InvariantGPRegressor, DATA + REGRESSION_DATA, SETTINGS + REGRESSION_SETTINGS),
        *as_table(InvariantGPClassifier, DATA + CLASSIFICATION_DATA, SETTINGS + CLASSIFICATION_SETTINGS),
    ],
)
def test_fit_says_what_is_wrong(
    kind: Any, settings: dict[str, Any], inputs: Any, targets: Any, error: type[Exception], match: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
    estimator = kind(**settings)
    before = set(vars(estimator))
    with pytest.raises(error, match=match) as caught:
        estimator.fit(inputs, targets)
    assert isinstance(caught.value, ValueError | TypeError)
    assert set(vars(estimator)) == before


def test_training_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Trainer) -> None:
        raise FloatingPointError("the bound is nan")

    monkeypatch.setattr(Trainer, "run", fail)
    estimator = InvariantGPRegressor(inference="sparse")
    before = dict(vars(estimator))
    with pytest.raises(FloatingPointError, match="the bound is nan"):
        estimator.fit(X, y)
    assert vars(estimator) == before


def test_a_refit_that_fails_keeps_what_was_fitted() -> None:
    estimator = InvariantGPClassifier(max_steps=1, random_state=0).fit(X, labels)
    before = dict(vars(estimator))
    with pytest.raises(ValueError, match="at least two classes"):
        estimator.fit(X[:, :2], np.zeros(12))
    assert vars(estimator) == before
    assert estimator.predict(X).shape == (12,)


@pytest.fixture(scope="module")
def fitted() -> InvariantGPClassifier:
    return InvariantGPClassifier(Rotation(), max_steps=1, num_inducing=5, random_state=0).fit(images, labels)


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        (images[:, :3], r"X must have shape \(N, 4, 4\), got \(12, 3, 4\)"),
        (images[:, None], r"X must have shape \(N, 4, 4\), got \(12, 1, 4, 4\)"),
        (
            images.reshape(12, 16)[:, :9],
            "X has 9 features, but InvariantGPClassifier is expecting 16 features as input",
        ),
        (images * np.nan, "Input X contains NaN"),
        (images[:0], "0 sample"),
        (images[0, 0], "Reshape your data"),
    ],
)
def test_predict_says_what_is_wrong(fitted: InvariantGPClassifier, inputs: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        fitted.predict_proba(inputs)


def test_predict_refuses_the_size_that_fit_refuses() -> None:
    fitted = InvariantGPRegressor(max_steps=1, random_state=0).fit(X, y)
    assert np.isfinite(fitted.predict(X * 1e150)).all()
    with pytest.raises(ValueError, match=r"X holds .*e\+300, and distances between such inputs are infinite"):
        fitted.predict(X * -1e300)


def test_predict_before_fit() -> None:
    with pytest.raises(NotFittedError, match="InvariantGPRegressor instance is not fitted yet"):
        InvariantGPRegressor().predict_quantiles(X)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, np.nan])
def test_quantile_levels(level: float) -> None:
    estimator = InvariantGPRegressor(max_steps=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="a quantile level lies strictly between 0 and 1"):
        estimator.predict_quantiles(X, [level])


def test_columns_of_very_different_units_get_a_hint() -> None:
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(12, 2)) * [1e-3, 1e3]
    with pytest.warns(UserWarning, match=r"spread by 0\.0009 to 7\.2e\+02.*StandardScaler"):
        InvariantGPRegressor(max_steps=1, random_state=0).fit(wide, wide[:, 0])
    # Neither a constant column, up to rounding, nor a kernel with a lengthscale for each.
    for kernel, x in ((None, wide[:, :1] * [1.0, 0.0] + [0.0, 1e6]), (RBFKernel(ard_num_dims=2), wide)):
        InvariantGPRegressor(kernel=kernel, max_steps=1, random_state=0).fit(x, wide[:, 0])


def test_no_levels_of_quantiles() -> None:
    model = InvariantGPRegressor(max_steps=2).fit(X, y)
    with pytest.raises(ValueError, match="levels must be probabilities between 0 and 1"):
        model.predict_quantiles(X, [])


def test_normalize_y_is_a_yes_or_a_no() -> None:
    with pytest.raises(TypeError, match="normalize_y must be True or False, got 'no'"):
        InvariantGPRegressor(normalize_y="no").fit(X, y)


@pytest.mark.parametrize("unit", [1e-100, 1e50])
def test_units_of_inputs_may_lie_beyond_single_precision(unit: float) -> None:
    expected = InvariantGPRegressor(max_steps=3).fit(X, y).evidence_.value
    assert InvariantGPRegressor(max_steps=3).fit(unit * X, y).evidence_.value == pytest.approx(expected, abs=1e-6)
