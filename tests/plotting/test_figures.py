"""Bars of ranges: they lie where the ranges do, on a scale that related quantities share."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.axes import Axes

from orbitgp.orbits import Orbit

pytest.importorskip("matplotlib")

from orbitgp.orbits import Affine, LocalDeformation, Permutation, Rotation
from orbitgp.orbits.description import changes
from orbitgp.plotting.figures import draw_change, new_axes


def drawn(before: Orbit | Rotation, after: Any) -> dict[str, Axes]:
    """Axes for each quantity that both orbits have, by name."""
    found = {}
    for change in changes(before.describe(), after.describe()):
        found[change.name] = new_axes(2.8, 0.4)
        draw_change(found[change.name], change)
        found[change.name].figure.canvas.draw()
    return found


def test_ranges_before_and_after() -> None:
    found = drawn(Affine() * LocalDeformation(), Affine(angle=(-20, 30)) * LocalDeformation(2.5))
    assert len(found) == 8
    old, new = found["angle"].lines[:4:2]
    assert list(old.get_xdata()) == pytest.approx([-8.6, 8.6])
    assert list(new.get_xdata()) == pytest.approx([-20, 30])
    assert list(found["amplitude"].lines[2].get_xdata()) == pytest.approx([0, 2.5])
    assert found["scale_x"].get_xlim() == found["scale_y"].get_xlim()
    assert found["scale_x"].get_xscale() == "log"
    for axes in found.values():  # all of it is seen, with the value at which nothing happens
        low, high = axes.get_xlim()
        assert all(low < end < high for line in axes.lines for end in line.get_xdata())
        assert axes.lines[-1].get_xdata()[0] == (1 if axes.get_xscale() == "log" else 0)


def test_a_half_width_is_drawn_on_both_sides() -> None:
    assert list(drawn(Rotation(10), Rotation(17))["degrees"].lines[2].get_xdata()) == pytest.approx([-17, 17])


def test_a_count_is_no_range() -> None:
    swap = Permutation.swap(0, 1)
    assert changes(swap.describe(), swap.describe()) == []
