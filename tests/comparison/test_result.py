"""The picture of a comparison: dots and intervals in nats against the best."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from orbitgp.comparison.result import Comparison
from orbitgp.comparison.verdict import Standing
from orbitgp.plotting.figures import PAPER, new_axes


def drawn(standings, tied):
    """Height, dot, both ends of the interval, and colour of each orbit."""
    rows = [SimpleNamespace(orbit=standing.name) for standing in standings]
    compared = SimpleNamespace(standings=standings, tied=tied, rows=rows)
    axes = Comparison.plot(compared, new_axes(5.0, 3.0))
    found = []
    for dot, _, (bar,) in axes.containers:
        ((left, height), (right, _)) = bar.get_segments()[0]
        assert dot.get_ydata()[0] == height
        found.append((height, dot.get_xdata()[0], left, right, to_hex(dot.get_color())))
    return axes, found


def test_dots_and_intervals_against_the_best():
    standings = [Standing("best", 10.0, 9.0, 13.0), Standing("tied", 8.0, 5.0, 11.0), Standing("far", -20.0, -21.0, -18.5)]
    axes, found = drawn(standings, ["best", "tied"])
    expected = [(0, 0, -1, 3, PAPER.accent), (1, -2, -5, 1, PAPER.accent), (2, -30, -31, -28.5, PAPER.soft)]
    for one, other in zip(found, expected, strict=True):
        assert one[:4] == pytest.approx(other[:4])
        assert one[4] == other[4]
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["best", "tied", "far"]


def test_an_open_interval_is_as_wide_as_the_others_reach():
    others = Standing("near", 7.0, 6.0, 8.0), Standing("far", -20.0, -21.0, -18.0)
    _, found = drawn([Standing("best", 10.0, 9.0, inf), *others], ["best"])
    assert found[0][3] == pytest.approx(28)  # as far above the best as the farthest lies below
    _, found = drawn([Standing("best", 10.0, 9.0, inf), Standing("far", -20.0, -21.0, inf)], ["best"])
    assert [right for *_, right, _ in found] == pytest.approx([0, 0])
