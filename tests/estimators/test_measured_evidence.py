"""The evidence of a sparse model, where draws are noisy."""

from __future__ import annotations

from orbitgp.estimators.evidence import bounded
from orbitgp.inference.evidence import Evidence


def scored(value: float, stderr: float, upper: float) -> Evidence:
    return bounded(Evidence(value, stderr, 10, 64, "Gaussian"), upper)


def test_a_bound_far_above_its_upper_bound_is_noise() -> None:
    """A kernel of variance 1e9 and a noise of 6e-3 scored 31,800,114 +- 12,660,355 nats, where 20 is the most there can be."""
    found = scored(31_800_114.0, 12_660_355.0, 20.0)
    assert found.value == found.upper == 20.0
    assert found.interval[0] < -25e6


def test_a_bound_below_its_upper_bound_stays() -> None:
    found = scored(10.0, 3.0, 20.0)
    assert (found.value, found.upper) == (10.0, 20.0)


def test_other_draws_may_have_more_than_those_of_the_upper_bound() -> None:
    found = scored(30.0, 0.5, 20.0)
    assert found.value == found.upper == 27.5
    exact = scored(30.0, 0.0, 20.0)
    assert exact.value == exact.upper == 30.0
