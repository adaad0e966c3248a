"""BFGS from one point, on functions whose optimum is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der

from orbitgp.training.maximise import MAX_BFGS, Optimum, Stopped, maximise

Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


def quadratic(hessian: np.ndarray, best: np.ndarray) -> Function:
    """Minus a log evidence of 3 at ``best``, with this curvature."""

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        slope = hessian @ (vector - best)
        return 0.5 * float((vector - best) @ slope) - 3.0, slope

    return evaluate


def curved(size: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """A curvature between 1 and 100 in directions of no axis, and an optimum."""
    rng = np.random.default_rng(0)
    half = np.linalg.qr(rng.normal(size=(size, size)))[0] * np.geomspace(1, 10, size)
    return half @ half.T, rng.normal(size=size)


def test_a_quadratic_and_its_curvature() -> None:
    hessian, best = curved()
    found = maximise(quadratic(hessian, best), np.zeros(4), tolerance=1e-12)
    assert found.value == pytest.approx(3.0, abs=1e-9)
    np.testing.assert_allclose(found.vector, best, atol=1e-5)
    np.testing.assert_allclose(found.inverse_hessian, np.linalg.inv(hessian), rtol=0.05, atol=0.01)


def test_along_a_bent_valley() -> None:
    values: list[float] = []
    found = maximise(lambda v: (rosen(v), rosen_der(v)), np.array([-1.2, 1.0, 0.5]), 1e-9, report=values.append)
    np.testing.assert_allclose(found.vector, 1.0, atol=1e-3)
    assert values == sorted(values)
    assert values[-1] == found.value


def test_parameters_that_are_too_many_for_a_whole_hessian() -> None:
    size = MAX_BFGS + 1
    hessian, best = np.diag(np.geomspace(1, 100, size)), np.ones(size)
    found = maximise(quadratic(hessian, best), np.zeros(size), 1e-9)
    np.testing.assert_allclose(found.vector, best, atol=1e-3)
    assert found.inverse_hessian is None


@pytest.mark.parametrize("factors", [4 * [1e-3], 4 * [1e3], [1e-3, 1, 1, 1], [1, 1, 1, 1e-3], [0.03, 1, 30, 0.03]])
@pytest.mark.parametrize(
    "start", [np.zeros(4), curved()[1] + [0.0, 0.0, 0.0, 2.0]], ids=["from zero", "along one axis"]
)
def test_a_wrong_curvature_of_a_coarser_objective_does_not_end_the_search(
    factors: list[float], start: np.ndarray
) -> None:
    """Along some axes of the curvature it is too stiff or too soft. What such a Hessian promises does not count."""
    hessian, best = curved()
    curvatures, axes = np.linalg.eigh(hessian)
    wrong = axes @ np.diag(factors / curvatures) @ axes.T
    found = maximise(quadratic(hessian, best), start, tolerance=0.02, inverse_hessian=0.5 * (wrong + wrong.T))
    assert found.value > 3.0 - 0.1


def test_the_right_curvature_leads_there_at_once() -> None:
    hessian, best = curved()
    evaluate, count = quadratic(hessian, best), [0]

    def counted(vector: np.ndarray) -> tuple[float, np.ndarray]:
        count[0] += 1
        return evaluate(vector)

    inverse = np.linalg.inv(hessian)
    found = maximise(counted, np.zeros(4), 0.02, 0.5 * (inverse + inverse.T))
    np.testing.assert_allclose(found.vector, best, atol=1e-6)
    assert count[0] <= 4


def test_points_without_evidence_are_kept_away_from() -> None:
    """log x - x is not defined at zero and below, which a first step from x = 3 comes to."""

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        if vector[0] <= 0:
            return math.inf, np.zeros(1)
        return float(vector[0] - math.log(vector[0])), 1 - 1 / vector

    found = maximise(evaluate, np.array([3.0]), 1e-9, inverse_hessian=np.array([[50.0]]))
    assert found.vector[0] == pytest.approx(1.0, abs=1e-3)
    assert found.value == pytest.approx(-1.0, abs=1e-6)


def test_no_evidence_at_the_start_is_one_sentence() -> None:
    with pytest.raises(FloatingPointError, match="not finite at the start"):
        maximise(lambda vector: (math.inf, np.zeros(2)), np.zeros(2), 1e-3)


def test_a_search_that_is_stopped_tells_its_highest_point() -> None:
    hessian, best = curved()
    evaluate = quadratic(hessian, best)
    seen: list[Optimum] = []

    def limited(vector: np.ndarray) -> tuple[float, np.ndarray]:
        if len(seen) == 4:
            raise Stopped
        value, slope = evaluate(vector)
        seen.append(Optimum(-value, vector.copy()))
        return value, slope

    with pytest.raises(Stopped) as stopped:
        maximise(limited, np.zeros(4), 1e-9)
    highest = max(seen, key=lambda point: point.value)
    assert stopped.value.best is not None
    assert stopped.value.best.value == highest.value
    np.testing.assert_array_equal(stopped.value.best.vector, highest.vector)


def test_an_optimum_comes_back_from_a_state() -> None:
    hessian, best = curved()
    for optimum in (Optimum(1.5, best, hessian, 1.25), Optimum(1.5, best)):
        again = Optimum.unpacked(*optimum.packed())
        assert (again.value, again.fresh) == (optimum.value, optimum.fresh)
        np.testing.assert_array_equal(again.vector, optimum.vector)
        if optimum.inverse_hessian is None:
            assert again.inverse_hessian is None
        else:
            np.testing.assert_array_equal(again.inverse_hessian, optimum.inverse_hessian)
