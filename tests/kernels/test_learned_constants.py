"""Gaussian windows, against the formula number by number."""

import math

import pytest
import torch

from orbitgp.kernels.learned_constants import windows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0.05, 0.57, 3.0, 40.0])
def test_windows_are_gaussians_that_sum_to_one(dtype: torch.dtype, width: float) -> None:
    found = windows(16, 5, torch.tensor(width, dtype=dtype))
    for row, centre in zip(found, (1.1, 4.3, 7.5, 10.7, 13.9), strict=True):
        nearest = min(abs(t - centre) for t in range(16))
        bells = [math.exp(-0.5 * ((t - centre) ** 2 - nearest**2) / width**2) for t in range(16)]
        expected = torch.tensor(bells, dtype=dtype) / sum(bells)
        torch.testing.assert_close(row, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_weight_is_so_small_that_computing_with_it_is_slow(dtype: torch.dtype) -> None:
    smallest = torch.finfo(dtype).tiny ** 0.5  # products of two weights are normal numbers, too
    for width in torch.logspace(-2, 2, 41, dtype=dtype):
        found = windows(200, 200, width)
        assert not ((found > 0) & (found < smallest)).any()
        torch.testing.assert_close(found.sum(1), torch.ones_like(found[:, 0]))


def test_gradient_of_the_width() -> None:
    width = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: windows(14, 3, w), width)
