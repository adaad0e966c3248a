"""Inducing variables that average g over orbit samples of their point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.inference.elbo import elbo
from orbitgp.inference.evidence import measure_evidence
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, Permutation, Rotation

LENGTHSCALE, VARIANCE, NOISE = 0.8, 1.3, 0.2
CYCLE = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_model(orbit: Permutation | Rotation | GaussianNoise, inducing: torch.Tensor, samples: int) -> InvariantGP:
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    return InvariantGP(kernel, orbit.double(), inducing, 1, "zero", jitter=1e-10, inducing_samples=samples)


def rbf(a: Any, b: Any) -> torch.Tensor:
    return VARIANCE * torch.exp(-0.5 * (a[:, None] - b).square().sum(-1) / LENGTHSCALE**2)


def best_bound(model: Any, x: Any, y: Any) -> float:
    likelihood, samples = Gaussian(1, NOISE), model.orbit.sample(x, None)
    with torch.no_grad():
        set_posterior(model, statistics(model, model.whitened_means(samples), likelihood.quadratic(y), len(x)))
        return elbo(model, likelihood, samples, y, len(x)).item()


def test_at_the_data_they_are_values_of_f_and_the_bound_is_the_log_marginal_likelihood() -> None:
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    elements = [x[:, p] for p in CYCLE]
    kff = sum(rbf(a, b) for a in elements for b in elements) / 9
    law = torch.distributions.MultivariateNormal(torch.zeros(6), kff + NOISE * torch.eye(6))
    exact = law.log_prob(y[:, 0]).item()
    assert best_bound(make_model(Permutation(CYCLE), x, samples=3), x, y) == pytest.approx(exact, abs=1e-6)
    # Values of g at the same six points say less.
    assert best_bound(make_model(Permutation(CYCLE), x, samples=1), x, y) < exact - 0.1


def test_sets_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = make_model(Rotation(60.0), torch.rand(3, 5, 5), samples=4), torch.rand(9, 5, 5), torch.randn(9, 1)
    made, made_before = [], model.inducing_sets
    monkeypatch.setattr(model, "inducing_sets", lambda: made.append(0) or made_before())
    elbo(model, Gaussian(1, NOISE), model.orbit.sample(x, 4, 2), y, 9).backward()  # for Kuu and k_fu
    assert len(made) == 1
    whole = model.predict(x, 4)
    with monkeypatch.context() as patch:
        patch.setattr("orbitgp.inference.model.chunk_elements", lambda device: 200)
        parts = model.predict(x, 4)  # for all parts of the data
    assert len(made) == 3
    torch.testing.assert_close(parts, whole)
    measure_evidence(model, Gaussian(1, NOISE), x, y, 4, passes=2)
    assert len(made) == 5  # once for the factor, and once for all passes


def test_points_that_moved_are_seen() -> None:
    """What is held for a pass over the data is let go after it, however it ends."""
    model, x = make_model(Rotation(60.0), torch.rand(3, 5, 5), samples=4), torch.rand(2, 5, 5)
    with torch.no_grad():
        model.q_mean.normal_()
    before = model.predict(x, 4)[0]
    with pytest.raises(KeyError), model.cached_inducing_features():
        raise KeyError
    with torch.no_grad():
        model.inducing.add_(0.5)
    assert (model.predict(x, 4)[0] - before).abs().max() > 1e-3


@torch.no_grad()
def test_covariances_are_means_over_the_set() -> None:
    model = make_model(Rotation(60.0), torch.rand(3, 5, 5), samples=4)
    sets = model.inducing_sets()
    assert sets.shape == (3, 4, 25)
    samples = model.orbit.sample(torch.rand(2, 5, 5), 4, 2)
    kuu = torch.stack([torch.stack([rbf(a, b).mean() for b in sets]) for a in sets])
    torch.testing.assert_close(model.factor() @ model.factor().mT, kuu + 1e-10 * torch.eye(3))
    kfu = torch.stack(
        [torch.stack([rbf(block, b).mean(0).mean() for b in sets]) for block in samples.points[:, 0].flatten(2)]
    )
    torch.testing.assert_close(model.kernel_means(samples)[0][:, 0], kfu)


def test_the_gradient_reaches_the_orbit_through_the_sets() -> None:
    model = make_model(GaussianNoise(0.3), torch.randn(3, 2), samples=4)
    scale = next(model.orbit.parameters())

    def log_det(value: Any) -> Any:
        with torch.no_grad():
            scale.copy_(value)
        return model.factor().diagonal().log().sum()

    at, step = scale.detach().clone(), 1e-5
    (gradient,) = torch.autograd.grad(log_det(at), scale)
    slope = (log_det(at + step) - log_det(at - step)).item() / (2 * step)
    assert gradient.sum().item() == pytest.approx(slope, rel=1e-6)
    assert abs(slope) > 1e-3


def test_they_are_saved(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    x, y = torch.rand(20, 5, 5).numpy(), [0, 1] * 10
    settings = {"num_inducing": 6, "num_samples": 4, "max_steps": 2, "random_state": 0}
    model = InvariantGPClassifier(Rotation(20.0), training=TrainingOptions(inducing_samples=4), **settings).fit(x, y)
    assert model.model_.inducing_sets().shape == (6, 4, 25)
    model.save(tmp_path / "model.safetensors")
    again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert again.training.inducing_samples == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_their_draws_have_the_precision_of_the_points_and_are_spread_evenly(dtype: torch.dtype) -> None:
    points = torch.zeros(3, 1, dtype=dtype)
    model = InvariantGP(RBFKernel(), GaussianNoise(0.5).to(dtype), points, inducing_samples=64)
    assert model.inducing_draws is not None
    assert model.inducing_draws.dtype == model.inducing_sets().dtype == dtype
    # Each set is a net: one draw in each of 64 intervals of equal probability.
    for draws in model.inducing_draws[:, :, 0]:
        assert (64 * draws).floor().sort().values.tolist() == list(range(64))


def test_a_large_finite_orbit_is_averaged_over_as_many_elements_as_asked_for() -> None:
    orbit = Permutation([[1, 0, 2, 3, 4], [1, 2, 3, 4, 0]], close=True)
    assert orbit.size == 120
    model = InvariantGP(ScaleKernel(RBFKernel()).double(), orbit, torch.rand(4, 5).double(), inducing_samples=2)
    assert model.inducing_sets().shape == (4, 2, 5)
    assert len(model.inducing) * model.inducing_samples == 8
