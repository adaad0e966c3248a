"""The picture of a comparison: dots and intervals in nats against the best."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest
from matplotlib.axes import Axes
from numpy import float64

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex

from orbitgp.comparison.result import Comparison
from orbitgp.comparison.verdict import Standing
from orbitgp.plotting.figures import ACCENT, SOFT, new_axes


def drawn(standings: list[Standing], tied: list[str]) -> tuple[Axes, list[tuple[float64, float, float64, float64, str]]]:
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


def test_dots_and_intervals_against_the_best() -> None:
    standings = [Standing("best", 10.0, 9.0, 13.0), Standing("tied", 8.0, 5.0, 11.0), Standing("far", -20.0, -21.0, -18.5)]
    axes, found = drawn(standings, ["best", "tied"])
    expected = [(0, 0, -1, 3, ACCENT), (1, -2, -5, 1, ACCENT), (2, -30, -31, -28.5, SOFT)]
    for one, other in zip(found, expected, strict=True):
        assert one[:4] == pytest.approx(other[:4])
        assert one[4] == other[4]
    assert axes.yaxis_inverted()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["best", "tied", "far"]


def test_an_open_interval_is_as_wide_as_the_others_reach() -> None:
    others = Standing("near", 7.0, 6.0, 8.0), Standing("far", -20.0, -21.0, -18.0)
    _, found = drawn([Standing("best", 10.0, 9.0, inf), *others], ["best"])
    assert found[0][3] == pytest.approx(28)  # as far above the best as the farthest lies below
    _, found = drawn([Standing("best", 10.0, 9.0, inf), Standing("far", -20.0, -21.0, inf)], ["best"])
    assert [right for *_, right, _ in found] == pytest.approx([0, 0])


def test_the_best_has_a_thin_line_behind_everything_and_dots_have_caps() -> None:
    axes, _ = drawn([Standing("best", 10.0, 9.0, 13.0), Standing("far", -20.0, -21.0, -18.5)], ["best"])
    ((dot, caps, (bar,)), _), (zero,) = axes.containers, [line for line in axes.lines if line.get_linestyle() == "-"]
    assert dot.get_marker() == "o"
    assert [cap.get_markersize() for cap in caps] == [6, 6]  # both halves
    assert list(zero.get_xdata()) == [0, 0]
    assert zero.get_linewidth() < bar.get_linewidths()[0]
    assert zero.get_zorder() < bar.get_zorder()
    assert to_hex(zero.get_color()) == SOFT


def test_a_picture_grows_by_a_line_for_each_orbit() -> None:
    class Two:
        rows = (1, 2)

    width, height = Comparison._chart_size.fget(Two)
    assert (width, height) == pytest.approx((6, 1.9))
