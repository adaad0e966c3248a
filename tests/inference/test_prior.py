"""When single precision is enough, and where a prior mean lies."""

from __future__ import annotations

import pytest
import torch

from orbitgp.inference.prior import PriorMean, single_precision_suffices


@pytest.mark.parametrize(
    ("noise", "variance", "enough"),
    [
        ([1e-2, 1.0], [1.0], True),
        ([1e-6, 1.0], [1.0], False),  # the smallest noise counts
        ([1e-3], [1e-3, 100.0], False),  # and the largest variance
        ([1.0], [1e-3, 100.0], True),
    ],
)
def test_a_solution_divides_what_is_rounded_by_the_noise(
    noise: list[float], variance: list[float], enough: bool
) -> None:
    """K is known to eps times its variance. Over the noise, that must be far below one in single precision; in double
    it is."""
    given = torch.tensor(noise), torch.tensor(variance)
    assert single_precision_suffices(*given, torch.float32) is enough
    assert single_precision_suffices(*given, torch.float64)


def test_a_linear_mean_lies_around_its_points_in_units_of_their_spread() -> None:
    points = torch.tensor([[0.0, 10.0], [2.0, 10.0], [4.0, 16.0]], dtype=torch.float64)
    mean = PriorMean("linear", points, 1)
    torch.testing.assert_close(mean.centre, points.mean(0))
    assert float(mean.unit) == pytest.approx(((8 / 3 + 8) / 2) ** 0.5)  # of each column over the rows, and their mean
