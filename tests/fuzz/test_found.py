"""Every problem that once ended badly, by name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel

from experiments.stick_breaking import StickBreaking
from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.estimators.initialise import initial_kernel
from orbitgp.kernels import OrientedGradients, covariance
from orbitgp.likelihoods import Dirichlet
from orbitgp.orbits import Brightness, GaussianNoise, Pairing, Permutation, Rotation
from tests.fuzz.invariants import _data, _measured, _rounding, brute_force
from tests.fuzz.problems import random_problem

pytestmark = pytest.mark.usefixtures("one_start")

SMALL: dict[str, Any] = {"max_steps": 4, "num_samples": 4, "random_state": 0}


def within_ten_ranges(model: Any, X: np.ndarray, y: np.ndarray) -> bool:
    return bool((np.abs(model.predict(X) - y.mean()) < 10 * np.ptp(y)).all())


def test_duplicates_do_not_stop_the_choice_of_the_concentration() -> None:
    """A raw Cholesky error, where all rows are nearly equal: their distances were rounding, and the kernel
    indefinite."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1, 2)) * (1 + 1e-9 * rng.normal(size=(30, 2)))
    model = InvariantGPClassifier(likelihood="dirichlet", **SMALL).fit(X, np.arange(30) % 3)
    assert np.isfinite(model.predict_proba(X)).all()


def test_inducing_points_that_a_swap_makes_equal() -> None:
    """A Cholesky error: swapped points are the same point, many lengthscales from the others, and rounding tells them
    apart."""
    a, b = np.random.default_rng(1).normal(size=2)
    X, y = 1e7 * np.array([[a, b], [b, a]] * 4), np.arange(8.0)
    options = TrainingOptions(inducing_samples=2, learning_rate=0.03)
    kernel = ScaleKernel(RBFKernel())
    model = InvariantGPRegressor(Permutation.swap(0, 1), kernel, num_inducing=4, training=options, **SMALL)
    assert within_ten_ranges(model.fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore:the border of these images")
@pytest.mark.parametrize("training", [None, TrainingOptions(learning_rate=0.03)], ids=["climb", "steps"])
def test_jitter_need_not_be_raised_by_hand(training: TrainingOptions | None) -> None:
    """ "raise jitter" on a legitimate problem: Student-t, brightness, gradients, more points than images, and little
    light."""
    images = 1e-6 * np.repeat(np.random.default_rng(0).random((3, 5, 5)), 2, axis=0)
    given: dict[str, Any] = {**SMALL, "max_steps": 8, "training": training}
    model = InvariantGPRegressor(
        Brightness(), likelihood="student-t", feature_map=OrientedGradients(), num_inducing=14, **given
    )
    y = np.arange(6.0)
    assert within_ten_ranges(model.fit(images, y), images, y)


@pytest.mark.parametrize("inducing_samples", [1, 3])
@pytest.mark.parametrize("num_inducing", [1, 17])
@pytest.mark.filterwarnings("ignore:the columns of X spread")
def test_a_linear_mean_has_the_units_of_what_it_sees(num_inducing: int, inducing_samples: int) -> None:
    """A prediction a hundred times beyond all targets: one inducing point does not tell how far apart inputs are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3)) * [1e-4, 1.0, 1e4]
    y = np.sin(X[:, 1])
    options = TrainingOptions(inducing_samples=inducing_samples, num_predict_samples=2)
    for scale in (1.0, 1e-6):
        noise = InvariantGPRegressor(
            GaussianNoise(), mean="linear", num_inducing=num_inducing, training=options, **SMALL
        )
        assert within_ten_ranges(noise.fit(scale * X, y), scale * X, y)


@pytest.mark.filterwarnings("ignore:the border of these images")
def test_images_of_two_pixels() -> None:
    """An evidence that is not finite: gradients of an image without any, and a likelihood of several decisions."""
    images = 1e-8 * (1e5 + np.random.default_rng(0).random((12, 1, 2)))
    options = TrainingOptions(inducing_samples=3, learning_rate=0.03)
    given: dict[str, Any] = {**SMALL, "max_steps": 8, "training": options, "feature_map": OrientedGradients()}
    model = InvariantGPClassifier(Rotation(), likelihood=StickBreaking(3), num_inducing=20, **given)
    assert np.isfinite(model.fit(images, np.arange(12) % 3).evidence_.value)


@pytest.mark.filterwarnings("ignore:the border of these images", "ignore:the pixels of X")
def test_images_far_from_zero_and_many_lengthscales_apart() -> None:
    """An infinite covariance: in single precision, distances from products were all rounding."""
    images = 32_000 + np.random.default_rng(0).random((4, 4, 8))
    model = InvariantGPRegressor(Rotation(), ScaleKernel(RBFKernel()), mean="linear", inference="exact", **SMALL)
    assert np.isfinite(model.fit(images, np.arange(4.0)).evidence_.value)


def test_nearly_equal_rows_whose_swaps_are_far_apart() -> None:
    rng = np.random.default_rng(0)
    X = 1e7 * rng.normal(size=(2, 3))[np.arange(8) % 2] * (1 + 1e-9 * rng.normal(size=(8, 3)))
    model = InvariantGPClassifier(Permutation.swap(0, 1), inference="exact", **SMALL).fit(X, np.arange(8) % 2)
    assert np.isfinite(model.evidence_.value)


def test_robust_likelihoods_in_large_units() -> None:
    """The least precision of a datum was absolute, so targets of many thousands were taken for none at all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(16, 2))
    y = 4e6 + 1e4 * np.sin(X[:, 0])
    model = InvariantGPRegressor(likelihood="student-t", inference="exact", normalize_y=False, **SMALL)
    assert within_ten_ranges(model.fit(X, y), X, y)


def test_the_mean_learns_in_the_units_of_the_targets() -> None:
    """Adam moved the constant of the mean by 0.03 a step, whatever the targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 2))
    y = 1e-8 * np.sin(X[:, 0])
    options = TrainingOptions(learning_rate=0.03)
    model = InvariantGPRegressor(likelihood="student-t", num_inducing=5, normalize_y=False, training=options, **SMALL)
    assert within_ten_ranges(model.fit(X, y), X, y)


@pytest.mark.parametrize("scale", [1e-8, 1e6])
def test_a_target_that_does_not_vary_has_its_own_size_for_a_unit(scale: float) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = InvariantGPRegressor(likelihood="student-t", num_inducing=5, **SMALL).fit(X, np.full(20, scale))
    assert np.abs(model.predict(X) / scale - 1).max() < 1


@pytest.mark.parametrize("inference", ["exact", "sparse"])
@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
@pytest.mark.parametrize("normalize_y", [True, False])
def test_targets_that_vary_by_rounding(likelihood: str, inference: str, normalize_y: bool) -> None:
    """An evidence or a bound of nan: their variance of 1e-63 was taken for that of f."""
    X, y = np.random.default_rng(0).normal(size=(46, 2)), np.full(46, 1441.3228767110365)  # their mean is rounded
    given: dict[str, Any] = {**SMALL, "likelihood": likelihood, "inference": inference, "normalize_y": normalize_y}
    model = InvariantGPRegressor(training=TrainingOptions(dtype="float32"), **given).fit(X, y)
    assert np.isfinite(model.evidence_.value)
    assert np.abs(model.predict(X) / y - 1).max() < 1


@pytest.mark.parametrize("likelihood", ["student-t"])
def test_the_evidence_of_constant_targets_has_a_top(likelihood: str) -> None:
    """1e26 nats: the scale of robust noise went to zero."""
    X = np.random.default_rng(0).normal(size=(20, 1))
    model = InvariantGPRegressor(likelihood=likelihood, random_state=0).fit(X, np.ones(20))
    assert model.converged_
    assert model.evidence_.value < 20 * np.log(1e3)  # of a density that is no narrower than a thousandth of the targets


@pytest.mark.parametrize("kernel", [None, RQKernel(), MaternKernel(nu=0.5), RBFKernel(ard_num_dims=3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_alone_and_together_many_lengthscales_from_zero(kernel: Kernel | None, dtype: str) -> None:
    """Variances of 1e88, and of nan: whether products cancel was asked of the other points, and not of the rows
    themselves."""
    rng = np.random.default_rng(0)
    X = 1e4 * rng.normal(size=3) + rng.normal(size=(12, 3))
    given: dict[str, Any] = {**SMALL, "inference": "exact", "training": TrainingOptions(dtype=dtype)}
    orbit = GaussianNoise() * Permutation.swap(0, 1)
    model = InvariantGPRegressor(orbit, kernel and ScaleKernel(kernel), **given).fit(X, np.sin(X[:, 0]))
    together = np.stack(model.predict(X, return_std=True))
    alone = np.concatenate([np.stack(model.predict(row[None], return_std=True)) for row in X], 1)
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-9 if dtype == "float64" else 1e-3)


@pytest.mark.parametrize("scale", [1e3, 1e7])
def test_a_kernel_of_gpytorch_sees_small_distances_of_large_inputs(scale: float) -> None:
    """It takes distances from products. The kernel of a row with itself, and with its copy, was off by as much as it
    is."""
    x = scale * torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near = x + 0.1
    expected = RQKernel().double()(x, near, diag=True)  # from differences
    found = covariance(RQKernel().double()).cross(x[:, None], near[:, None]).diagonal()
    torch.testing.assert_close(found, expected.detach(), rtol=1e-6, atol=0.0, check_dtype=False)


def test_the_names_of_classes_do_not_choose_the_concentration() -> None:
    """48 nats: two concentrations that predict equally well were told apart by an average that favours some classes."""
    rng = np.random.default_rng(1)
    x, labels = torch.from_numpy(rng.normal(size=(9, 32))), torch.from_numpy(rng.integers(0, 4, 9))
    one, other = Dirichlet(4), Dirichlet(4)
    one.prepare(x, labels)
    other.prepare(x, 3 - labels)
    assert one.concentration == other.concentration


def test_noise_below_the_rounding_of_single_precision() -> None:
    """The exact evidence was off by 16 nats: a kernel of single precision is off by as much as the noise of equal
    rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 3))[np.arange(16) % 4]
    y = np.sin(X[:, 0])
    model = InvariantGPRegressor(inference="exact", training=TrainingOptions(dtype="float32"), random_state=0).fit(X, y)
    assert float(model.likelihood_.noise.detach()) < 1e-4
    truth = brute_force(model, X, y)
    assert truth is not None
    assert model.evidence_.value == pytest.approx(truth, abs=0.02)


def test_a_lengthscale_is_not_the_rounding_of_features() -> None:
    """An evidence above the exact one: nearly equal images have features that differ by rounding alone."""
    rng = np.random.default_rng(0)
    images = 1e4 * rng.random((1, 5, 5)) * (1 + 1e-7 * rng.normal(size=(6, 5, 5)))
    kernel = initial_kernel(
        None, torch.tensor(images, dtype=torch.float32), 1.0, torch.Generator().manual_seed(0), OrientedGradients()
    )
    assert float(kernel.base_kernel.base_kernel.lengthscale.detach()) > 1e-6


def test_a_kink_has_no_slope_where_rows_are_equal() -> None:
    """The slope by the lengthscale of Matérn-1/2 was 96 or 0, by the order of the rows: it divided by a rounded
    distance."""
    x = 400 + torch.randn(3, 9, generator=torch.Generator().manual_seed(0))[torch.arange(12) % 3]
    weights = torch.randn(12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slopes = []
    for dtype in (torch.float32, torch.float64):
        kernel = MaternKernel(nu=0.5).double()
        means, own = covariance(kernel).expectations(x.to(dtype)[:, None, None], x.to(dtype), Pairing.exact())
        ((means[:, 0].double() * weights).sum() + own.sum()).backward()
        slopes.append(float(kernel.raw_lengthscale.grad))
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-4)


def test_a_huge_group_is_refused() -> None:
    """A file could ask for a group of 12! permutations, and for days of work."""
    with pytest.raises(ValueError, match="more than 100,000 elements"):
        Permutation([[*range(1, 12), 0], [1, 0, *range(2, 12)]], close=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kink_sees_that_rows_are_equal(dtype: torch.dtype) -> None:
    """0.6 nats by the order of the rows (seed 7876): equal rows were 1e-7 apart, and the noise was 1e-6."""
    x = 2 * torch.randn(4, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))[torch.arange(12) % 4]
    found = covariance(MaternKernel(nu=0.5).double()).expectations(x[:, None, None], x, Pairing.exact())[0][:, 0]
    equal = torch.arange(12)[:, None] % 4 == torch.arange(12) % 4
    assert (found[equal] == 1).all()
    distances = (x[:, None].double() - x.double()).norm(dim=-1)
    expected = torch.exp(-distances / np.log(2))  # the lengthscale that GPyTorch starts from
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_swaps_that_lie_ninety_lengthscales_from_their_centre() -> None:
    """0.003 nats by the order of the rows (seed 6826): K was off by 1e-12 of its variance, and the noise was 1e-9 of
    it."""
    rng = np.random.default_rng(0)
    x = np.stack([np.full(22, -4e5), -6e4 + 300 * rng.normal(size=22)], 1) / 2500
    both = torch.from_numpy(np.stack([x, x[:, ::-1]], 1))
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    found = covariance(kernel).cross(both, both)
    gaps = both.numpy().astype(np.longdouble)
    squares = ((gaps[:, :, None, None] - gaps) ** 2).sum(-1)
    expected = np.exp(-squares / 2).mean((1, 3)).astype(float)
    np.testing.assert_allclose(found.detach(), expected, rtol=0, atol=1e-14)


def test_rounding_of_single_precision_beside_an_outlier() -> None:
    """0.007 nats by the order of the rows (seed 2540): the check took the precision of the data for that of the
    outlier."""
    problem = random_problem(2540)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = problem.estimator().fit(problem.X, problem.y)
    x, y = _data(problem, estimator)
    orders = [torch.randperm(len(x), generator=torch.Generator().manual_seed(i)) for i in range(20)]
    values = [_measured(problem, estimator, estimator.model_, x[order], y[order]).value for order in orders]
    assert np.ptp(values) < _rounding(problem, estimator) < 0.1
