"""Anderson mixing against maps whose fixed points are known."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from orbitgp.inference.fixed_point import AndersonMixing, find_fixed_point


def test_a_linear_map_of_d_dimensions_takes_d_plus_one_steps() -> None:
    turn = torch.linalg.qr(torch.tensor([[1.0, 2.0, 0.0], [2.0, -1.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)).Q
    slow = turn @ torch.diag(torch.tensor([0.9, 0.6, 0.2], dtype=torch.float64)) @ turn.mT
    fixed = torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64)
    mixing, point = AndersonMixing(), fixed + 0.1
    for _ in range(4):
        point = mixing.next(point, fixed + slow @ (point - fixed))
    torch.testing.assert_close(point, fixed, rtol=1e-6, atol=0.0)


def test_the_fixed_point_stays_where_it_is() -> None:
    point = torch.tensor([[2.0], [0.0], [-1.0]], dtype=torch.float64)
    mixing = AndersonMixing()
    for _ in range(3):
        torch.testing.assert_close(mixing.next(point, point), point)


def test_numbers_keep_their_sign_and_stay_near_the_image() -> None:
    mixing, positive = AndersonMixing(), torch.tensor([1.0, -1.0], dtype=torch.float64)
    mixing.next(positive, 0.5 * positive)  # towards zero, and by secants beyond it
    following = mixing.next(0.5 * positive, torch.tensor([0.1, -0.1], dtype=torch.float64))
    torch.testing.assert_close(following, torch.tensor([0.05, -0.05], dtype=torch.float64))


def test_after_forgetting_the_next_step_is_plain() -> None:
    mixing, image = AndersonMixing(), torch.tensor([0.3], dtype=torch.float64)
    mixing.next(torch.ones(1, dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64))
    mixing.forget()
    assert mixing.next(torch.tensor([0.5], dtype=torch.float64), image) is image


def test_it_settles_at_the_highest_bound() -> None:
    """The fixed point of Newton's method for a square root, where -(z^2 - 2)^2 is highest."""
    points = []

    def turn(point: Any) -> tuple[float | int, Any, None] | tuple[float, Any, str] | tuple[float, Any, int]:
        points.append(point)
        return -float((point.square() - 2).square().sum()), 0.5 * (point + 2 / point), len(points)

    image, found = find_fixed_point(turn, torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close(image, torch.full_like(image, 2**0.5))
    assert found == len(points)


@pytest.mark.parametrize(("first", "of_a_datum"), [(100.0, 1e-1), (100.0, 1e-3), (0.5, 1e-3)])
def test_it_ends_where_one_more_turn_would_gain_too_little(
    first: float, of_a_datum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gains that halve from turn to turn, and 100 data: the next must be below what is asked."""
    monkeypatch.setattr(AndersonMixing, "next", lambda self, point, image: image)
    monkeypatch.setattr("orbitgp.inference.fixed_point._NATS_OF_DATUM", of_a_datum)
    bounds = [first * sum(0.5**k for k in range(n)) for n in range(20)]
    count = []

    def turn(point: Any) -> tuple[float | int, Any, None] | tuple[float, Any, str] | tuple[float, Any, int]:
        count.append(1)
        return bounds[len(count) - 1], point, None

    find_fixed_point(turn, torch.ones(100, 1))
    gains = [after - before for before, after in itertools.pairwise(bounds)]
    assert gains[len(count) - 1] < 100 * of_a_datum <= gains[len(count) - 2]


@pytest.mark.parametrize("bound", [float("nan"), -float("inf"), float("inf"), 1.0])
def test_what_is_not_finite_ends_it(bound: float) -> None:
    points = []

    def turn(point: Any) -> tuple[float, Any, str]:
        points.append(point)
        return bound, point / 0.0 if bound == 1.0 else point, "found"

    assert find_fixed_point(turn, torch.ones(2, 1))[1] == "found"
    assert len(points) == 1


@pytest.mark.parametrize(("fixed", "found"), [(3.0, 3.0), (10.0, 2 * 2.71)])
def test_a_secant_ends_at_the_fixed_point_or_at_twice_the_image(fixed: Any, found: Any) -> None:
    """p -> fixed + slope (p - fixed), from 1: the second step is a secant."""
    slope, mixing, point = {3.0: 0.5, 10.0: 0.9}[fixed], AndersonMixing(), torch.ones(1, dtype=torch.float64)
    for _ in range(2):
        point = mixing.next(point, fixed + slope * (point - fixed))
    assert float(point) == pytest.approx(found)
