"""Bars of ranges: they lie where the ranges do, on the same scale as those of the report."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from orbitgp.orbits import Affine, LocalDeformation, Permutation, Rotation
from orbitgp.orbits.description import changes
from orbitgp.plotting import ranges
from orbitgp.report.charts import range_bars


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_ranges_before_and_after(theme):
    before, after = Affine() * LocalDeformation(), Affine(angle=(-20, 30)) * LocalDeformation(2.5)
    figure = ranges(before, after, theme=theme, title="learned")
    figure.canvas.draw()
    assert len(figure.axes) == 8
    old, new = figure.axes[0].lines[:4:2]
    assert list(old.get_xdata()) == pytest.approx([-8.6, 8.6])
    assert list(new.get_xdata()) == pytest.approx([-20, 30])
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert "−20° … +30°" in words
    assert "angle" in words
    assert "2.5 px" in " ".join(text.get_text() for text in figure.axes[6].texts)
    assert figure.axes[1].get_xlim() == figure.axes[2].get_xlim()  # scale_x and scale_y


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Rotation(10), Rotation(17)),
        (Affine(), Affine(angle=(-20, 30), scale_x=(0.9, 1.4), shift_y=(-1, 2))),
        (LocalDeformation(), LocalDeformation(2.5, 9)),
    ],
    ids=["Rotation", "Affine", "LocalDeformation"],
)
def test_figure_and_page_agree(before, after):
    """The figure's bars lie where the report's do, on the same scale."""
    figure = ranges(before, after)
    rows = changes(before.describe(), after.describe())
    assert len(figure.axes) == len(rows) == len(after.describe())
    for axes, change in zip(figure.axes, rows, strict=True):
        assert [text.get_text() for text in axes.texts[1:3]] == [str(change.before), str(change.after)]
        paths = re.findall(r'<path d="M (\S+) \S+ \nL (\S+) \S+ \n" clip-path', range_bars(change))
        *bars, (neutral, _) = [(float(left), float(right)) for left, right in paths]
        # Both scales go through the line where nothing happens and the further end of all bars; one more point fixes them.
        on_page = np.array(bars) - neutral
        scale = np.log if change.after.unit == "×" else np.asarray
        in_figure = np.array([scale(line.get_xdata()) for line in axes.lines[:4:2]]) - scale(axes.lines[-1].get_xdata()[0])
        np.testing.assert_allclose(on_page / np.abs(on_page).max(), in_figure / np.abs(in_figure).max(), atol=0.01)


def test_a_half_width_is_drawn_on_both_sides():
    assert list(ranges(Rotation(10), Rotation(17)).axes[0].lines[2].get_xdata()) == pytest.approx([-17, 17])


def test_a_count_is_no_range():
    swap = Permutation.swap(0, 1)
    assert changes(swap.describe(), swap.describe()) == []
    with pytest.raises(ValueError, match="share no parameter"):
        ranges(swap, swap)
