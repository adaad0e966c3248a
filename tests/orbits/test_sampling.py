"""Base draws: uniform, open, unbiased, independent across rows and groups, and better than iid where they claim to
be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from orbitgp.orbits import sampling as module
from orbitgp.orbits.sampling import POLICIES, base_draws


def smooth(u: Tensor) -> Tensor:
    """A smooth function of the draws that is neither linear nor symmetric; its mean over the cube is known."""
    return torch.exp(0.5 * u).mean(-1) + torch.prod(1 + 0.3 * (u - 0.3), dim=-1)


def truth(dim: int) -> float:
    return 2 * (2.718281828459045**0.5 - 1) + (1 + 0.3 * 0.2) ** dim


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("points", [1, 7, 16])
def test_draws_are_uniform_in_the_open_cube(policy: str, dtype: torch.dtype, points: int) -> None:
    u = base_draws(policy, 500, 2, points, 3, dtype=dtype)
    assert u.shape == (500, 2, points, 3)
    assert u.dtype == dtype
    assert u.min() > 0
    assert u.max() < 1
    assert torch.special.ndtri(u).isfinite().all()
    # Each single draw is uniform: a chi-squared test over ten bins for each point and coordinate.
    counts = torch.histc(u[:, :, 0].double(), 10, 0, 1)
    expected = counts.sum() / 10
    assert ((counts - expected) ** 2 / expected).sum() < 30  # 9 degrees of freedom: p = 4e-4


@pytest.mark.parametrize("all_ones", [False, True])
def test_the_ends_of_the_digits_stay_inside(monkeypatch: pytest.MonkeyPatch, all_ones: bool) -> None:
    def extreme(high: Any, size: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return torch.full(size, high - 1 if all_ones else 0, dtype=dtype)

    monkeypatch.setattr(torch, "randint", extreme)
    for dtype in (torch.float32, torch.float64):
        u = base_draws("qmc", 1, 1, 4, 2, dtype=dtype)
        assert u.min() > 0
        assert u.max() < 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("points", "dim"), [(8, 1), (8, 6), (12, 6), (5, 3), (2, 1)])
def test_group_means_are_unbiased(policy: str, points: int, dim: int) -> None:
    means = smooth(base_draws(policy, 4000, 1, points, dim, dtype=torch.float64)).mean(-1).flatten()
    error = means.std() / len(means) ** 0.5
    assert abs(means.mean() - truth(dim)) < 4 * error


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_and_groups_are_independent(policy: str) -> None:
    means = smooth(base_draws(policy, 4000, 2, 8, 2, dtype=torch.float64)).mean(-1)
    across_groups = torch.corrcoef(means.T)[0, 1]
    across_rows = torch.corrcoef(torch.stack([means[:-1, 0], means[1:, 0]]))[0, 1]
    assert abs(across_groups) < 4 / 4000**0.5
    assert abs(across_rows) < 4 / 4000**0.5


def test_draws_inside_a_qmc_group_are_not_independent_and_spread_evenly() -> None:
    u = base_draws("qmc", 50, 2, 16, 4)
    for i in range(4):  # one draw in each sixteenth, in every coordinate
        cells = (u[..., i] * 16).long().sort(dim=-1).values
        assert (cells == torch.arange(16)).all()


def test_evenly_spaced_first_coordinate_for_any_number_of_points() -> None:
    gaps = base_draws("qmc", 20, 2, 12, 3, dtype=torch.float64)[..., 0].sort(dim=-1).values.diff(dim=-1)
    torch.testing.assert_close(gaps, torch.full_like(gaps, 1 / 12), rtol=0, atol=1e-12)


def test_variance_is_reduced() -> None:
    def variance(policy: str, points: int, dim: int) -> Tensor:
        return smooth(base_draws(policy, 2000, 1, points, dim, dtype=torch.float64)).mean(-1).var()

    assert variance("qmc", 16, 1) < variance("iid", 16, 1) / 10
    assert variance("qmc", 16, 6) < variance("iid", 16, 6) / 8
    assert variance("qmc", 16, 50) < variance("iid", 16, 50) / 2


def test_reproducible_from_a_generator() -> None:
    for policy in POLICIES:
        one, two = (base_draws(policy, 3, 2, 4, 2, generator=torch.Generator().manual_seed(7)) for _ in range(2))
        assert torch.equal(one, two)


def test_beyond_the_dimensions_of_sobol_the_rest_is_iid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SOBOL_MAX_DIM", 3)
    u = base_draws("qmc", 200, 2, 16, 10)
    assert u.shape == (200, 2, 16, 10)
    cells = (u * 16).long().sort(dim=2).values
    even = (cells == torch.arange(16)[:, None]).all(dim=2)
    assert even[..., :4].all()
    assert not even[..., 4:].any()


def test_no_draws_at_all() -> None:
    assert base_draws("qmc", 3, 2, 4, 0).shape == (3, 2, 4, 0)
