"""Who climbs on, on evidences of one reach that are known by heart."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import FeatureMapKernel, OrientedGradients
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Affine, GaussianNoise, Identity, Orbit
from orbitgp.planning.rungs import MOST_CONTENDERS
from orbitgp.training.contenders import DRAWS_MARGIN, ROWS_MARGIN, contenders, neighbours
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.maximise import Optimum

Evidence = Callable[[float], float]


def learned_vector(orbit: Orbit | None = None) -> LearnedVector:
    x = torch.rand(6, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = ExactGP(ScaleKernel(RBFKernel()).double(), (orbit or GaussianNoise(0.1)).double(), x)
    return LearnedVector(model, Gaussian())


LEARNED = learned_vector()


def vector(reach: float) -> np.ndarray:
    return np.where(LEARNED.is_reach, reach, 0.5)


def reach_of(vector: np.ndarray) -> float:
    return float(vector[LEARNED.is_reach][0])


def survivors(
    evidence: Evidence, reaches: list[float], fresh: dict[float, float] | None = None, sees_all: bool = True
) -> Any:
    """The reaches that climb on, if optima lie at these; ``fresh`` is the evidence on fresh draws where that
    differs."""
    optima = [Optimum(evidence(r), vector(r), None, (fresh or {}).get(r, evidence(r))) for r in reaches]
    found = contenders(optima, sees_all, LEARNED, lambda vector: evidence(reach_of(vector)))
    return [reach_of(optimum.vector) for optimum in found]


def hills(**heights: float) -> Evidence:
    """Hills at these reaches, of these heights, with deep valleys between."""
    tops = {float(name.lstrip("at")): height for name, height in heights.items()}
    return lambda reach: max(height - 100 * (reach - top) ** 2 for top, height in tops.items())


def test_hills_that_may_still_win_go_on_and_the_highest_comes_first() -> None:
    little = 0.5 * DRAWS_MARGIN
    assert survivors(hills(at1=0.0, at3=little), [1.0, 3.0]) == [3.0, 1.0]
    assert survivors(hills(at1=0.0, at3=2 * DRAWS_MARGIN), [1.0, 3.0]) == [3.0]


def test_more_rows_may_change_more_than_more_draws() -> None:
    evidence = hills(at1=0.0, at3=0.5 * (DRAWS_MARGIN + ROWS_MARGIN))
    assert survivors(evidence, [1.0, 3.0], sees_all=True) == [3.0]
    assert survivors(evidence, [1.0, 3.0], sees_all=False) == [3.0, 1.0]


def test_fresh_draws_rank() -> None:
    evidence = hills(at1=0.0, at3=50.0)
    assert survivors(evidence, [1.0, 3.0], fresh={1.0: 0.0, 3.0: -30.0})[0] == 1.0


def test_a_climb_that_failed_does_not_go_on() -> None:
    assert survivors(hills(at1=0.0, at3=5.0), [1.0, 3.0], fresh={3.0: -math.inf}) == [1.0]


def test_points_of_one_flat_hill_are_one() -> None:
    assert len(survivors(lambda reach: 0.0, [0.1, 0.9, 3.0])) == 1
    assert len(survivors(hills(at1=0.0, at2=0.0), [1.0, 2.0])) == 2


@pytest.mark.parametrize("fresh", [0.0, -30.0])
def test_a_valley_parts_two_hills_however_far_fresh_draws_lower_both(fresh: float) -> None:
    at = survivors(lambda reach: -25.0 if 1.5 < reach < 2.5 else 0.0, [1.0, 3.0], fresh={1.0: fresh, 3.0: fresh})
    assert sorted(at) == [1.0, 3.0]


def test_a_reach_and_its_negative_are_one_hill() -> None:
    assert len(survivors(lambda reach: -100 * (abs(reach) - 2) ** 2, [2.0, -2.0])) == 1


def test_no_more_than_a_few_go_on_and_one_always_does() -> None:
    reaches = [2.0**i for i in range(MOST_CONTENDERS + 2)]  # no one lies midway between two others
    evidence = hills(**{f"at{reach:g}": 1e-3 * reach for reach in reaches})
    assert survivors(evidence, reaches) == reaches[::-1][:MOST_CONTENDERS]
    assert survivors(lambda reach: -math.inf, [1.0]) == [1.0]


def flat(_: Vector) -> float:
    """The same evidence everywhere."""
    return 0.0


class TestNeighbours:
    def test_one_reach_is_made_wider_and_narrower(self) -> None:
        narrow, wide = neighbours(Optimum(0.0, vector(2.0)), LEARNED, flat)
        assert reach_of(narrow) < 2.0 < reach_of(wide)
        for found in (narrow, wide):
            np.testing.assert_array_equal(found[~LEARNED.is_reach], vector(2.0)[~LEARNED.is_reach])

    def test_kernel_and_likelihood_follow_where_that_has_more_evidence(self) -> None:
        generator = np.random.default_rng(0)
        root = generator.normal(size=(len(LEARNED.is_reach),) * 2)
        hessian, top = 50 * (root @ root.T + np.eye(len(root))), vector(2.0)
        best, others = Optimum(0.0, top, np.linalg.inv(hessian)), ~LEARNED.is_reach

        def quadratic(at: Vector) -> float:
            return float(-0.5 * (at - top) @ hessian @ (at - top))

        for found in neighbours(best, LEARNED, quadratic):
            np.testing.assert_allclose((hessian @ (found - top))[others], 0.0, atol=1e-9)
            assert abs(reach_of(found) - 2.0) > 0.5
        for found in neighbours(best, LEARNED, lambda at: -quadratic(at)):
            np.testing.assert_array_equal(found[others], top[others])

    def test_several_reaches_move_together(self) -> None:
        learned = learned_vector(Affine())
        here = np.ones(len(learned.is_reach))
        for found in neighbours(Optimum(0.0, here), learned, flat):
            np.testing.assert_array_equal(found != here, learned.is_reach)

    def test_near_ones_are_higher_lie_between_and_keep_the_kernel(self) -> None:
        best = Optimum(-1.0, vector(2.0), np.linalg.inv(50 * np.eye(len(LEARNED.is_reach)) + 1))
        narrow, wide = neighbours(best, LEARNED, flat)
        narrower, wider, given = neighbours(best, LEARNED, flat, narrow=vector(0.1))
        assert neighbours(best._replace(value=0.0), LEARNED, flat, narrow=vector(0.1)) == []
        np.testing.assert_array_equal(given, vector(0.1))
        assert reach_of(narrow) < reach_of(narrower) < 2.0 < reach_of(wider) < reach_of(wide)
        for found in (narrower, wider):
            np.testing.assert_array_equal(found[~LEARNED.is_reach], best.vector[~LEARNED.is_reach])


def test_constants_of_a_feature_map_stay_within_a_factor_of_ten_thousand() -> None:
    x = torch.rand(6, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = FeatureMapKernel(RBFKernel(), OrientedGradients(), (8, 8)).double()
    learned = LearnedVector(ExactGP(kernel, Identity(), x), Gaussian())
    at = [id(parameter) for parameter in learned.parameters].index
    window, lengthscale = at(id(kernel.feature_map.raw_window)), at(id(kernel.base_kernel.raw_lengthscale))
    for place, factor, inside in ((window, 5e3, True), (window, 2e4, False), (lengthscale, 2e4, True)):
        moved = learned.get()
        moved[place] += np.log(factor)
        assert learned.contains(moved) == inside
