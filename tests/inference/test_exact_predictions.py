"""Predictions of the exact model that leave variances out, against those that compute them all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from orbitgp.inference import exact_predictions, orbit_gram
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.exact_predictions import RoughCovariance
from orbitgp.kernels import InvariantKernel, covariance
from orbitgp.likelihoods import Classification, Dirichlet, Gaussian, GaussianIndicators, Likelihood
from orbitgp.orbits import GaussianNoise, Permutation

ROWS = 150


def conditioned(likelihood: Likelihood, y: Tensor) -> ExactGP:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 1.0, 5.0
    orbit = Permutation([(0, 1, 2), (1, 2, 0), (2, 0, 1)])
    model = ExactGP(kernel, orbit, torch.randn(ROWS, 3, dtype=torch.float64), num_latents=likelihood.num_latents)
    model.condition(likelihood, y)
    return model


@pytest.fixture
def of_classes() -> ExactGP:
    likelihood = Dirichlet(3, 0.01)
    return conditioned(likelihood, likelihood.encode(torch.randint(3, (ROWS,))))


def test_rows_that_ask_get_their_variance_and_others_an_upper_bound(of_classes: Any) -> None:
    new, asked = torch.randn(40, 3, dtype=torch.float64), []

    def needs(mean: Tensor, most: Tensor) -> Tensor:
        asked.append((mean, most))
        return torch.arange(len(mean)) % 3 == 0

    mean, variance = of_classes.predict(new)
    same, some = of_classes.predict(new, needs_variance=needs)
    (told, most), rows = asked[0], torch.arange(40) % 3 == 0
    assert torch.equal(mean, same)
    assert torch.equal(mean, told)
    torch.testing.assert_close(some[rows], variance[rows], rtol=1e-10, atol=1e-12)
    assert torch.equal(some[~rows], most[~rows])
    assert (most >= variance - 1e-10).all()
    elements = of_classes.samples(new)
    prior = torch.stack([of_classes.kernel(row, row).to_dense().mean() for row in elements]).detach()
    assert (most < 0.9 * prior[:, None]).double().mean() > 0.5  # a few data already say something


def test_the_bound_is_the_variance_given_those_few_data(of_classes: Any) -> None:
    """Conditioned on every second of 150 rows, by a plain solve."""
    new = torch.randn(10, 3, dtype=torch.float64)
    bound = of_classes.predict(new, needs_variance=lambda mean, most: torch.zeros(len(mean), dtype=torch.bool))[1]
    few = torch.arange(0, ROWS, 2)
    gram, noise = of_classes.gram()[few][:, few], of_classes.noise[few]
    points = torch.cat([of_classes.x[few], new])
    seen = of_classes.samples(points)
    k = of_classes.kernel(seen.flatten(0, 1), seen.flatten(0, 1)).to_dense().detach()
    k = k.reshape(len(points), 3, len(points), 3).mean((1, 3))
    for latent in range(3):
        covariance = gram + noise[:, latent].diag()
        explained = (k[:75, 75:] * torch.linalg.solve(covariance, k[:75, 75:])).sum(0)
        torch.testing.assert_close(bound[:, latent], k.diagonal()[75:] - explained, rtol=1e-8, atol=1e-10)


def test_no_factor_is_made_where_no_variance_is_needed() -> None:
    model = conditioned(Gaussian(), torch.randn(ROWS, 1, dtype=torch.float64))
    new, expected = torch.randn(5, 3, dtype=torch.float64), model.predict(torch.zeros(1, 3, dtype=torch.float64))
    model.forget_posterior()
    model.predict_mean(new)
    model.predict(new, needs_variance=lambda mean, most: torch.zeros(len(mean), dtype=torch.bool))
    assert not model._inverted
    for again, before in zip(model.predict(torch.zeros(1, 3, dtype=torch.float64)), expected, strict=True):
        torch.testing.assert_close(again, before)
    assert model._inverted


def test_tiles_make_the_same_covariances(monkeypatch: pytest.MonkeyPatch, of_classes: Any) -> None:
    """Against the double mean of GPyTorch's kernel, with tiles of a few rows and columns that do not divide the
    data."""
    monkeypatch.setitem(orbit_gram._LEAST_BLOCK, False, 9 * 49)
    new = torch.randn(23, 3, dtype=torch.float64)
    kernel = InvariantKernel(of_classes.kernel, Permutation([(0, 1, 2), (1, 2, 0), (2, 0, 1)]))
    plain = covariance(of_classes.kernel)  # of all pairs, not a single sum
    with torch.no_grad():
        found = orbit_gram.cross(plain, of_classes.samples(new), of_classes.samples(of_classes.x))
        gram = orbit_gram.gram(plain, of_classes.samples(new))
        torch.testing.assert_close(found, kernel(new, of_classes.x).to_dense(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gram, kernel(new).to_dense(), rtol=1e-10, atol=1e-12)
    with torch.enable_grad():
        torch.testing.assert_close(orbit_gram.gram(plain, of_classes.samples(new)), gram)


def rough_problem(likelihood: Classification) -> tuple[ExactGP, Tensor]:
    """Rows of 40 dimensions, most of whose variance lies in eight, and classes that depend on more of them."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 3.0, 20.0
    random = torch.Generator().manual_seed(0)
    x = torch.randn(400, 40, generator=random) * torch.linspace(1, 0, 40).pow(20)
    labels = (x @ torch.randn(40, 3, generator=random)).argmax(1)
    model = ExactGP(kernel, GaussianNoise(0.05), x[:100], num_latents=3, num_samples=4)
    model.condition(likelihood, likelihood.encode(labels[:100]))
    return model, x[100:]


@torch.no_grad()
@pytest.mark.parametrize("likelihood", [Dirichlet(3, 1e-3), GaussianIndicators(3)], ids=["dirichlet", "indicators"])
def test_rough_means_change_no_label(likelihood: Classification, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though some would change if rough means were taken for exact ones."""
    model, new = rough_problem(likelihood)
    mean, variance = model.predict(new)
    expected = likelihood.most_probable(mean, variance)
    rough = RoughCovariance(model.vectors, model.samples(model.x)).cross(model.samples(new)).double()
    roughly = model.means(new) + rough @ model.weights
    assert (likelihood.most_probable(roughly, variance) != expected).any()
    monkeypatch.setattr(exact_predictions, "pays", lambda *_: True)
    asked = []

    def needs(mean: Tensor, most: Tensor, error: float = 0.0) -> Tensor:
        unsure = ~likelihood.is_sure(mean, most, error)
        asked.append((len(mean), int(unsure.sum()), error))
        return unsure

    found = model.predict(new, needs_variance=needs)
    assert torch.equal(likelihood.most_probable(*found), expected)
    unsure = next(count for rows, count, error in asked if rows == len(new) and error)
    assert 0 < unsure < 0.5 * len(new)


@torch.no_grad()
def test_rough_covariances_lack_one_term() -> None:
    """Against kernels of distances, pair by pair; none is lacking where data lie in few directions."""
    model, new = rough_problem(Dirichlet(3, 1e-3))
    seen, other = model.samples(model.x).double(), model.samples(new).double()
    rough = RoughCovariance(model.vectors, seen)
    rests = [
        side - rough.centre - (side - rough.centre) @ rough.directions.double() @ rough.directions.double().mT
        for side in (other, seen)
    ]
    lacking = torch.einsum("asd,bpd->abps", *rests).transpose(2, 3)
    squares = (other[:, None, :, None] - seen[None, :, None]).square().sum(-1) + 2 * lacking
    expected = 20 * torch.exp(-squares / 18).mean((2, 3))
    torch.testing.assert_close(rough.cross(other).double(), expected, rtol=1e-4, atol=1e-5)
    few = torch.randn(64, 1, 5, dtype=torch.float64) @ torch.randn(5, 40, dtype=torch.float64)
    torch.testing.assert_close(
        RoughCovariance(model.vectors, few).cross(few[:9]).double(),
        orbit_gram.cross(model.vectors, few[:9], few),
        rtol=1e-3,
        atol=1e-4,
    )
