"""Known noise of rows and weights: against scikit-learn's ``alpha`` without an orbit, and repeated measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from numpy.testing import assert_allclose
from sklearn.ensemble import BaggingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.model_selection import cross_val_score

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.likelihoods import Gaussian, StudentT
from orbitgp.orbits import Permutation

VARIANCE, LENGTHSCALE, NOISE = 1.25, 0.875, 0.0625  # which single precision holds
RNG = np.random.default_rng(0)
X, NEW = RNG.uniform(-2, 2, (25, 2)), RNG.uniform(-2, 2, (6, 2))
Y = np.sin(X[:, 0] + X[:, 1]) + 0.2 * RNG.normal(size=25)
ALPHA, WEIGHTS = RNG.uniform(0, 0.5, 25), RNG.uniform(0.2, 5, 25)

pytestmark = pytest.mark.usefixtures("one_start")


def frozen(orbit: Any = None, **settings: Any) -> InvariantGPRegressor:
    """A regressor that learns nothing but the posterior."""
    kernel, likelihood = ScaleKernel(RBFKernel()).double(), Gaussian(noise=NOISE, min_noise=1e-9)
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    for module in (kernel, likelihood):
        module.requires_grad_(False)
    given = {"mean": "zero", "normalize_y": False, "random_state": 0}
    return InvariantGPRegressor(orbit, kernel, likelihood=likelihood, **{**given, **settings})


@pytest.mark.parametrize("inference", ["exact", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_predictions_and_evidence_are_scikit_learns(inference: str, weighted: bool) -> None:
    training = TrainingOptions(jitter=1e-9) if inference == "sparse" else None
    model = frozen(alpha=ALPHA, inference=inference, training=training)
    model.fit(X, Y, sample_weight=WEIGHTS if weighted else None)
    known = NOISE / WEIGHTS + ALPHA if weighted else NOISE + ALPHA
    theirs = GaussianProcessRegressor(VARIANCE * RBF(LENGTHSCALE), alpha=known, optimizer=None).fit(X, Y)
    mean, std = model.predict(NEW, return_std=True)
    their_mean, their_std = theirs.predict(NEW, return_std=True)
    assert_allclose(mean, their_mean, atol=1e-4)
    assert_allclose(std, np.sqrt(their_std**2 + NOISE), atol=1e-4)
    assert model.evidence_.value == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-3)
    if not weighted:  # there, all of the noise but alpha is in the kernel
        white = GaussianProcessRegressor(VARIANCE * RBF(LENGTHSCALE) + WhiteKernel(NOISE), alpha=ALPHA, optimizer=None)
        assert_allclose(
            model.predict(NEW, return_cov=True)[1], white.fit(X, Y).predict(NEW, return_cov=True)[1], atol=1e-4
        )


def test_units_of_y_are_those_of_alpha() -> None:
    here = InvariantGPRegressor(max_steps=5, random_state=0, alpha=ALPHA).fit(X, Y)
    there = InvariantGPRegressor(max_steps=5, random_state=0, alpha=1024**2 * ALPHA).fit(X, 1024 * Y)
    assert_allclose(there.predict(NEW), 1024 * here.predict(NEW), rtol=1e-10)
    assert there.evidence_.value == pytest.approx(here.evidence_.value - len(Y) * np.log(1024), abs=1e-8)


@pytest.mark.parametrize("orbit", [None, Permutation.swap(0, 1)])
def test_the_mean_of_four_measurements_has_the_weight_four(orbit: Any) -> None:
    repeated = Y[:, None] + 0.3 * np.random.default_rng(1).normal(size=(25, 4))
    each = frozen(orbit).fit(np.repeat(X, 4, axis=0), repeated.ravel())
    means = frozen(orbit).fit(X, repeated.mean(1), sample_weight=np.full(25, 4.0))
    assert_allclose(means.predict(NEW), each.predict(NEW), rtol=1e-6)
    assert_allclose(means.predict(NEW, return_std=True)[1], each.predict(NEW, return_std=True)[1], rtol=1e-6)


def test_noise_is_learned_on_top_of_what_is_known() -> None:
    """Half of the rows have a known noise of standard deviation 1, all have one of 0.2 that is not known."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (300, 1))
    alpha = np.where(np.arange(300) < 150, 1.0, 0.0)
    y = np.sin(2 * x[:, 0]) + np.sqrt(alpha + 0.04) * rng.normal(size=300)
    model = InvariantGPRegressor(random_state=0, alpha=alpha).fit(x, y)
    learned = model.likelihood_.noise.item() * model.target_scale_[0] ** 2
    assert learned == pytest.approx(0.04, rel=0.3)
    plain = InvariantGPRegressor(random_state=0).fit(x, y)
    assert model.evidence_.value > plain.evidence_.value + 20


def test_the_second_fit_of_lengthscales_by_evidence_has_the_weights() -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.uniform(-3, 3, (60, 3)), np.where(np.arange(60) < 30, 1.0, 25.0)
    y = np.sin(2 * x[:, 0]) + 0.5 / np.sqrt(weights) * rng.normal(size=60)
    model = InvariantGPRegressor(mean="zero", normalize_y=False, ard="auto", random_state=0).fit(x, y, weights)
    assert model.ard_
    kernel, noise = model.kernel_, model.likelihood_.noise.item()
    lengthscales = kernel.base_kernel.lengthscale.detach().numpy()[0]
    same = GaussianProcessRegressor(
        kernel.outputscale.item() * RBF(lengthscales), alpha=noise / weights, optimizer=None
    )
    assert model.evidence_.value == pytest.approx(same.fit(x, y).log_marginal_likelihood_value_, abs=1e-4)


def test_gradients() -> None:
    y = torch.tensor(np.stack([Y, WEIGHTS, ALPHA], 1)[:5])
    likelihood = Gaussian(noise=0.1)
    f = torch.randn(5, 1, dtype=torch.float64)

    def value(log_noise: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(likelihood, {"log_noise": log_noise}, (y, f))

    likelihood.forward = likelihood.log_prob
    assert torch.autograd.gradcheck(value, (likelihood.log_noise.detach().requires_grad_(),))
    quadratic = likelihood.quadratic(y)
    by_hand = quadratic.const + (quadratic.eta * f - 0.5 * quadratic.lam * f**2).sum(-1)
    torch.testing.assert_close(by_hand, likelihood.log_prob(y, f))


def test_saved_and_loaded(tmp_path: Any) -> None:
    model = frozen(alpha=ALPHA).fit(X, Y, sample_weight=WEIGHTS)
    model.save(tmp_path / "model")
    loaded = InvariantGPRegressor.load(tmp_path / "model")
    assert np.array_equal(loaded.alpha, ALPHA)
    assert loaded.predict(NEW, return_cov=True)[1].tobytes() == model.predict(NEW, return_cov=True)[1].tobytes()


def test_weights_are_split_with_the_rows() -> None:
    model = InvariantGPRegressor(max_steps=1, random_state=0)
    scores = cross_val_score(model, X, Y, params={"sample_weight": WEIGHTS}, cv=2)
    assert scores.shape == (2,)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, list], ids=["array", "frame", "list"])
def test_rows_of_weight_zero_are_left_out(kind: Any) -> None:
    weights = np.where(np.arange(25) % 3 == 0, 0.0, WEIGHTS)
    some = weights > 0
    expected = frozen().fit(X[some], Y[some], sample_weight=weights[some]).predict(NEW)
    assert_allclose(frozen().fit(kind(X), list(Y), sample_weight=list(weights)).predict(kind(NEW)), expected)


def test_a_bag_of_regressors_gives_weights_of_its_own() -> None:
    bag = BaggingRegressor(InvariantGPRegressor(max_steps=2), n_estimators=2, random_state=0).fit(X, Y)
    assert bag.score(X, Y) > 0.5


@pytest.mark.parametrize(
    ("settings", "weights", "message"),
    [
        ({"alpha": np.ones(3)}, None, "alpha must be a number for each of 25 rows, got the shape"),
        ({"alpha": -1.0}, None, "alpha must be finite and at least zero in every row"),
        ({"alpha": None}, None, "alpha must be finite"),
        ({}, np.ones((25, 1)), "sample_weight must be a number for each of 25 rows"),
        ({}, np.zeros(25), "sample_weight must be finite and above zero in every row: leave out the others"),
        ({"likelihood": "student-t", "alpha": 0.1}, None, "and StudentT has another: leave them out"),
        ({"likelihood": StudentT()}, np.ones(25), "and StudentT has another: leave them out"),
    ],
)
def test_bad_noise(settings: dict[str, Any], weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InvariantGPRegressor(**settings).fit(X, Y, sample_weight=weights)


def test_outputs_of_different_scales_have_no_common_alpha() -> None:
    with pytest.raises(ValueError, match="alpha is in the units of one output"):
        InvariantGPRegressor(alpha=ALPHA).fit(X, np.stack([Y, 3 * Y], 1))
