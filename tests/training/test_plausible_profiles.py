"""Ends of profiles against closed forms: a profile that is skewed, with others whose best is a curve."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, log

import numpy as np
import pytest
from scipy.optimize import brentq

from orbitgp.training.plausible import Point, precision, profile_end

FALL = 1.92
Profile = Callable[[float], tuple[float, float]]


def skewed(r: float) -> tuple[float, float]:
    """Falls slowly downwards and fast upwards, from zero at r = 0; and its slope."""
    return -5 * (exp(r) - 1 - r), -5 * (exp(r) - 1)


def flat_above(r: float) -> tuple[float, float]:
    """Falls below zero, and hardly above."""
    return (-8 * r**2, -16 * r) if r < 0 else (-0.001 * r, -0.001)


def surface(profile: Profile) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """A function of (a, r, b) with this profile in r. The best a is r², the best b 3 r, and a matters more where r is
    large."""

    def function(vector: np.ndarray) -> tuple[float, np.ndarray]:
        a, r, b = vector
        height, slope = profile(r)
        first, second, weight = a - r**2, b - 3 * r + a, 4 * exp(r)
        value = height - 0.5 * weight * first**2 - 2 * second**2
        slopes = [
            -weight * first - 4 * second,
            slope - 0.5 * weight * first**2 + 2 * weight * first * r + 12 * second,
            -4 * second,
        ]
        return value, np.array(slopes)

    return function


def start(function: Callable[[np.ndarray], tuple[float, np.ndarray]], vector: np.ndarray) -> Point:
    return Point(vector, *function(vector), precision(lambda there: function(there)[1], vector))


def test_the_precision_is_minus_the_second_derivative_and_one_where_the_data_say_nothing() -> None:
    matrix = np.array([[5.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    found = precision(lambda vector: -matrix @ vector, np.ones(3))
    np.testing.assert_allclose(found, matrix + np.diag([0.0, 0.0, 1.0]), atol=1e-12)


@pytest.mark.parametrize("bound", [-inf, inf])
def test_a_profile_ends_where_it_has_fallen(bound: float) -> None:
    """A Gaussian around the top would end at ± 0.88, too early below and too late above."""
    function = surface(skewed)
    evaluations = []

    def counted(vector: np.ndarray) -> tuple[float, np.ndarray]:
        evaluations.append(vector)
        return function(vector)

    end, fallen = profile_end(counted, start(function, np.zeros(3)), 1, bound)
    assert fallen
    expected = brentq(lambda r: skewed(r)[0] + FALL, 0, 3 * np.sign(bound))
    assert end[1] == pytest.approx(expected, rel=0.03)
    assert abs(abs(end[1]) - 0.88) > 0.1
    assert function(end)[0] == pytest.approx(-FALL, abs=0.3)  # with the others at their best
    assert len(evaluations) <= 6


@pytest.mark.parametrize("cliff", [0.85, 0.0])
def test_a_point_that_cannot_be_evaluated_says_nothing_of_the_bound(cliff: float) -> None:
    """The first guess is 0.88, and the profile has fallen at 0.77. From a cliff at the optimum, nothing is known."""
    function = surface(skewed)

    def cut_off(vector: np.ndarray) -> tuple[float, np.ndarray]:
        if vector[1] > cliff:
            raise FloatingPointError
        return function(vector)

    optimum = start(function, np.zeros(3))
    if not cliff:
        with pytest.raises(FloatingPointError, match="no point"):
            profile_end(cut_off, optimum, 1, inf)
        return
    end, fallen = profile_end(cut_off, optimum, 1, inf)
    assert fallen
    assert end[1] == pytest.approx(brentq(lambda r: skewed(r)[0] + FALL, 0, 3), rel=0.03)


def test_a_profile_that_does_not_fall_ends_at_its_bound() -> None:
    function = surface(flat_above)
    top = start(function, np.zeros(3))
    end, fallen = profile_end(function, top, 1, 2.0)
    assert end[1] == 2.0
    assert not fallen
    end, fallen = profile_end(function, top, 1, inf)
    assert end[1] > 2
    assert not fallen
    end, fallen = profile_end(function, top, 1, -2.0)
    assert end[1] == pytest.approx(-((FALL / 8) ** 0.5), rel=0.03)
    assert fallen
    end, cut = profile_end(function, top, 1, -0.2)
    assert (end.tolist(), cut) == (pytest.approx([0.04, -0.2, -0.64], abs=0.1), False)


def test_a_profile_goes_on_from_another_top_that_is_higher() -> None:
    """The first step lands a little behind it. The profile ends where it has fallen below the first top."""

    def two_tops(r: float) -> tuple[float, float]:
        return -0.155 * (r * (r - 1.8)) ** 2 + 0.05 * r, -0.31 * r * (r - 1.8) * (2 * r - 1.8) + 0.05

    def function(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = two_tops(float(vector[0]))
        return value, np.array([slope])

    assert two_tops(1.96)[0] > 0 > two_tops(1.96)[1]
    end, fallen = profile_end(function, start(function, np.zeros(1)), 0, 9.0)
    assert fallen
    assert end[0] == pytest.approx(brentq(lambda r: two_tops(r)[0] + FALL, 2, 9), rel=0.03)


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_a_profile_ends_at_its_bound_where_there_is_no_gradient(how: str) -> None:
    function = surface(skewed)

    def broken(vector: np.ndarray) -> tuple[float, np.ndarray]:
        if vector[1] > 0.1 and how == "raises":
            raise FloatingPointError
        value, slopes = function(vector)
        return value, slopes * (np.nan if vector[1] > 0.1 else 1.0)

    end, fallen = profile_end(broken, start(function, np.zeros(3)), 1, 2.0)
    assert (end[1], fallen) == (2.0, False)


def test_a_parameter_alone_has_a_profile() -> None:
    def function(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = skewed(float(vector[0]))
        return value, np.array([slope])

    end, fallen = profile_end(function, start(function, np.zeros(1)), 0, inf)
    assert skewed(float(end[0]))[0] == pytest.approx(-FALL, abs=0.1)
    assert fallen


def test_ends_hold_the_truth_in_95_percent_of_all_samples() -> None:
    """The standard deviation of 15 draws, whose mean is not known. A Gaussian around the top holds it less often."""
    rng = np.random.default_rng(0)
    held, gaussian = 0, 0
    for y in rng.normal(size=(400, 15)):

        def function(vector: np.ndarray, y: np.ndarray = y) -> tuple[float, np.ndarray]:
            mean, sd = vector
            if sd <= 0:
                raise FloatingPointError
            squares = ((y - mean) ** 2).sum()
            slopes = [(y - mean).sum() / sd**2, -len(y) / sd + squares / sd**3]
            return -len(y) * log(sd) - 0.5 * squares / sd**2, np.array(slopes)

        top = start(function, np.array([y.mean(), y.std()]))
        low, high = (profile_end(function, top, 1, bound)[0][1] for bound in (0.0, inf))
        held += low < 1 < high
        gaussian += abs(y.std() - 1) < 1.96 * y.std() / (2 * len(y)) ** 0.5
    assert 0.9 < held / 400 < 0.98
    assert gaussian / 400 < 0.9


def test_there_is_no_profile_of_what_is_no_top() -> None:
    """A place 6 nats below the top: to say that nothing limits the parameter would be wrong."""
    function = surface(skewed)
    below = start(function, np.array([1.5, 0.5, -0.5]))
    assert below.value < -6
    with pytest.raises(FloatingPointError, match="higher"):
        profile_end(function, below, 1, -inf)


def test_there_is_no_profile_where_others_do_not_come_to_their_best() -> None:
    def always_rises(vector: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.0, np.full(3, 10.0)

    with pytest.raises(FloatingPointError, match="no point"):
        profile_end(always_rises, start(surface(skewed), np.zeros(3)), 1, inf)
