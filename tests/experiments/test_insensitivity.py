"""Insensitivity against loops, the closed form of an RBF under Gaussian noise, and functions drawn from the process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel

from experiments.insensitivity import insensitivity
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.orbits import Flip, GaussianNoise, Permutation, Rotate90

LOPSIDED = [[0, 1, 2], [1, 0, 2], [2, 1, 0]]  # not a group: insensitive, not invariant


pytestmark = pytest.mark.usefixtures("double")


def rbf(lengthscale: float = 0.8, variance: float = 1.7) -> Any:
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale = variance
    kernel.base_kernel.lengthscale = lengthscale
    return kernel


def correlation(points: Any, permutations: Any, lengthscale: float = 0.8) -> torch.Tensor:
    """The normalised kernel of f at points, by loops over the orbits; the variance of k_g cancels."""
    k_f = torch.zeros(len(points), len(points))
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            for p in permutations:
                for q in permutations:
                    k_f[i, j] += torch.exp(-0.5 * (a[p] - b[q]).square().sum() / lengthscale**2)
    return k_f / k_f.diagonal().outer(k_f.diagonal()).sqrt()


def within(row: Any, permutations: list[list[int]]) -> torch.Tensor:
    """A row and the elements of its orbit."""
    return torch.stack([row] + [row[p] for p in permutations])


def test_prior_equals_loops() -> None:
    x = torch.randn(5, 3)
    result = insensitivity(rbf(), Permutation(LOPSIDED), x)
    for i, row in enumerate(x):
        truth = correlation(within(row, LOPSIDED), LOPSIDED)[0, 1:].mean().item()
        assert result.expected_covariance[i].item() == pytest.approx(truth, rel=1e-12)
        assert result.expected_squared_deviation[i].item() == pytest.approx(2 * (1 - truth), rel=1e-10)
    assert result.exact
    assert result.elements == 3
    torch.testing.assert_close(result.bound(5.0), 10 * (1 - result.expected_covariance))  # 2 eps (1 - E k)
    torch.testing.assert_close(result.quantile(0.8), result.bound(5.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_is_strictly_invariant(dtype: torch.dtype) -> None:
    """Expected covariance one, deviation zero: exactly, in either precision."""
    vectors, images = torch.randn(6, 3, dtype=dtype), torch.rand(4, 25, dtype=dtype)
    kernel = ScaleKernel(MaternKernel()).to(dtype)
    for result in (
        insensitivity(kernel, Permutation([[1, 2, 0], [1, 0, 2]], close=True), vectors),
        insensitivity(kernel, Flip() * Rotate90(), images, image_shape=(5, 5)),
        insensitivity(kernel, Flip() * Rotate90(), images.reshape(4, 5, 5)),
    ):
        assert torch.equal(result.expected_covariance, torch.ones(len(result), dtype=dtype))
        assert torch.equal(result.expected_squared_deviation, torch.zeros(len(result), dtype=dtype))
    assert kernel.dtype == dtype  # the caller's kernel is left as it was


def test_single_precision_kernels_that_insist_on_it_are_evaluated_in_double() -> None:
    kernel = ScaleKernel(LinearKernel() + PolynomialKernel(2))
    x = torch.randn(4, 3)
    double = insensitivity(kernel, Permutation(LOPSIDED), x).expected_covariance
    single = insensitivity(kernel.float(), Permutation(LOPSIDED), x.float()).expected_covariance
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dim", [1, 2])
def test_rbf_under_gaussian_noise_has_a_closed_form(dim: int) -> None:
    """Noise on both sides widens the RBF to l^2 + 2 s^2; E_a over x_a = x + s e then gives (L / (L + s^2))^(D/2)."""
    lengthscale, scale = 1.3, 0.5
    wide = lengthscale**2 + 2 * scale**2
    truth = (wide / (wide + scale**2)) ** (dim / 2)
    x = torch.randn(2, dim)
    result = insensitivity(rbf(lengthscale), GaussianNoise(scale), x, num_samples=128)
    torch.testing.assert_close(result.expected_covariance, torch.full((2,), truth), atol=2e-3, rtol=0)
    assert not result.exact
    assert result.elements == 128
    assert insensitivity(rbf(lengthscale), GaussianNoise(scale), x).elements == 64


def test_functions_drawn_from_the_prior_deviate_as_expected_and_obey_the_bound() -> None:
    """20,000 functions and elements: the mean squared deviation is right, and P(deviation > bound(eps)) < 1/eps."""
    x = torch.randn(3, 3)
    result = insensitivity(rbf(), Permutation(LOPSIDED), x)
    draws = 20_000
    for i, row in enumerate(x):
        covariance = correlation(within(row, LOPSIDED), LOPSIDED)
        values, vectors = torch.linalg.eigh(covariance)  # singular: the identity is in the orbit
        f = torch.randn(draws, 4) @ (vectors * values.clamp_min(0).sqrt()).mT
        chosen = torch.randint(1, 4, (draws,))
        squared = (f[:, 0] - f[torch.arange(draws), chosen]) ** 2
        error = squared.std() / draws**0.5
        assert abs(squared.mean() - result.expected_squared_deviation[i]) < 4 * error
        for eps in (1.5, 3.0, 10.0):
            assert (squared > result.bound(eps)[i]).double().mean() < 1 / eps
        for prob in (0.5, 0.9):
            assert (squared <= result.quantile(prob)[i]).double().mean() >= prob


def test_prints_well() -> None:
    text = repr(insensitivity(rbf(), Permutation.swap(0, 1), torch.randn(4, 2)))
    assert text.splitlines()[0] == "Insensitivity under the prior: 4 rows, 2 orbit elements (all of them)"
    assert "expected covariance           1" in text
    sampled = insensitivity(rbf(), GaussianNoise(), torch.randn(1, 2), num_samples=8)
    assert repr(sampled).startswith("Insensitivity under the prior: 1 row, 8 orbit elements (a sample)\n")
    empty = insensitivity(rbf(), GaussianNoise(), torch.randn(0, 2))
    assert len(empty) == 0
    assert "0 rows" in repr(empty)


def test_subset_of_a_finite_orbit_is_a_sample() -> None:
    full = Permutation([[1, 2, 3, 0], [1, 0, 2, 3]], close=True)
    result = insensitivity(rbf(), full, torch.randn(2, 4), num_samples=5)
    assert (result.elements, result.exact) == (5, False)
    assert insensitivity(rbf(), full, torch.randn(2, 4)).elements == 24


def test_bad_input_is_one_clear_sentence() -> None:
    x, orbit = torch.randn(2, 2), Permutation.swap(0, 1, 2)
    result = insensitivity(rbf(), orbit, x)
    for bad in (0.0, -1.0):
        with pytest.raises(ValueError, match="eps must be positive"):
            result.bound(bad)
    for bad in (-0.1, 1.0, 1.5):
        with pytest.raises(ValueError, match="prob must be"):
            result.quantile(bad)
    with pytest.raises(TypeError, match="base_kernel"):
        insensitivity(InvariantKernel(rbf(), orbit), orbit, x)
    with pytest.raises(ValueError, match="batch of shape"):
        insensitivity(RBFKernel(batch_shape=torch.Size([3])), orbit, x)
    with pytest.raises(ValueError, match="does not fit"):
        insensitivity(rbf(), Flip(), x, image_shape=(2, 2))
    with pytest.raises(ValueError, match="vectors of 2 coordinates"):
        insensitivity(rbf(), orbit, torch.randn(2, 3))
    with pytest.raises(ValueError, match="positive number of samples"):
        insensitivity(rbf(), GaussianNoise(), x, num_samples=0)
