"""The one way to factorise: against torch where that succeeds, and on matrices where it does not."""

from __future__ import annotations

import pytest
import torch

from orbitgp.kernels.cholesky import cholesky, cholesky_without_waiting


def covariance(size: int = 6) -> torch.Tensor:
    root = torch.randn(size, size, dtype=torch.float64)
    return root @ root.mT + torch.eye(size, dtype=torch.float64)


def test_without_trouble_it_is_the_factor_of_torch() -> None:
    k = covariance()
    factor, jitter = cholesky(k)
    assert jitter == 0.0
    torch.testing.assert_close(factor, torch.linalg.cholesky(k))
    torch.testing.assert_close(cholesky_without_waiting(k), factor)


def test_a_singular_matrix_gets_as_little_jitter_as_it_needs() -> None:
    k = torch.ones(6, 6, dtype=torch.float64)
    k[0, 0] -= 1e-9
    factor, jitter = cholesky(k)
    assert 0 < jitter <= 1e-8
    torch.testing.assert_close(factor @ factor.mT, k + jitter * torch.diag(k.diagonal()))
    assert cholesky_without_waiting(k).isnan().all()


def test_a_gradient_takes_jitter_as_given() -> None:
    k = torch.ones(6, 6, dtype=torch.float64).requires_grad_()
    factor, jitter = cholesky(k)
    assert jitter > 0
    found = torch.autograd.grad(factor.square()[3].sum(), k)[0]
    by_hand = (torch.ones(6, 6, dtype=torch.float64) + jitter * torch.eye(6)).requires_grad_()
    expected = torch.autograd.grad(torch.linalg.cholesky(by_hand.mT).square()[3].sum(), by_hand)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1.0, 1e12])
def test_jitter_is_a_share_of_every_diagonal_entry(scale: float) -> None:
    """Duplicates beside a row of huge noise: what the duplicates need does not grow with the noise of others."""
    k = scale * torch.ones(3, 3, dtype=torch.float64)
    k[0, 0] -= 1e-9 * scale
    k[2, 2] += 1e9 * scale
    factor, jitter = cholesky(k)
    assert 0 < jitter <= 1e-8
    torch.testing.assert_close((factor @ factor.mT)[:2, :2], k[:2, :2], rtol=1e-7, atol=0.0)


def test_a_batch_is_factorised_together() -> None:
    good, singular = covariance(4), torch.ones(4, 4, dtype=torch.float64)
    singular[0, 0] -= 1e-9
    factor, jitter = cholesky(torch.stack([good, singular]))
    assert 0 < jitter <= 1e-8
    torch.testing.assert_close(factor[0], torch.linalg.cholesky(good), rtol=1e-6, atol=1e-6)


def test_a_diagonal_of_zero_gets_jitter_too() -> None:
    k = torch.zeros(2, 2, dtype=torch.float64)
    k[0, 0] = 3.0
    factor, jitter = cholesky(k)
    assert jitter == 1e-10
    torch.testing.assert_close(factor[1, 1] ** 2, torch.tensor(3e-10, dtype=torch.float64))


def test_what_is_no_covariance_is_refused_in_one_sentence() -> None:
    with pytest.raises(FloatingPointError, match="not positive definite"):
        cholesky(-covariance())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_shows_in_the_factor(value: float) -> None:
    """Training tries several starts, and one that fails loses: its bound is NaN."""
    k = covariance()
    k[2, 2] = value
    assert not cholesky(k).lower.isfinite().all()
