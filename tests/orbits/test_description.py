"""Quantities in words, and the part of a scale that they cover."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from orbitgp.orbits import Quantity
from orbitgp.orbits.description import Description, changes, listed


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Quantity(17.2, "°"), "±17°"),
        (Quantity((-16.0, 17.0), "°"), "−16° … +17°"),
        (Quantity((-15.0, 15.0), "°"), "±15°"),
        (Quantity((-15.1, 15.2), "°"), "±15°"),
        (Quantity((-3.0, 12.0), "°"), "−3° … +12°"),
        (Quantity((0.0, 12.0), "°"), "0° … 12°"),
        (Quantity((15.0, 15.0), "°"), "15°"),
        (Quantity((0.9999, 1.0002), "×"), "×1.00"),
        (Quantity((-0.5, 0.5), "px"), "±0.50 px"),
        (Quantity((-0.15, 0.15)), "±0.15"),
        (Quantity((0.8, 1.25), "×"), "×0.80 … ×1.25"),
        (Quantity((5.0, 40.0), "°"), "5° … 40°"),
        (Quantity((0.9, 1.167), "×"), "×0.90 … ×1.17"),
        (Quantity(0.4, "px"), "0.40 px"),
        (Quantity((-1.0, 2.0), "px"), "−1.0 … +2.0 px"),
        (Quantity((-0.034, 0.0048)), "−0.034 … +0.005"),
        (Quantity(8.0), "8"),
        (Quantity(1.23e-8), "1.2e−08"),
        (Quantity(nan), "nan"),
        (Quantity((-inf, 1.0)), "−inf … +1"),
    ],
)
def test_words(quantity: Quantity, text: str) -> None:
    assert str(quantity) == text


def test_spans() -> None:
    assert Quantity(17.0, "°").span == (-17.0, 17.0)
    assert Quantity(1.3, "×").span == (1.0, 1.3)
    assert Quantity(0.4, "px").span == (0.0, 0.4)
    assert Quantity((-1.0, 2.0), "px").span == (-1.0, 2.0)
    assert Quantity.of([-1, 2], "px") == Quantity((-1.0, 2.0), "px")


def test_axes_share_a_scale() -> None:
    before = Description(
        "a", {"shift_x": Quantity((-1.0, 1.0)), "shift_y": Quantity((2.0, 3.0)), "scale": Quantity((1.1, 1.3), "×")}
    )
    limits = {change.name: change.limits for change in changes(before, before)}
    assert limits == {"shift_x": (-1.0, 3.0), "shift_y": (-1.0, 3.0), "scale": (1.0, 1.3)}


def test_a_plausible_range_of_no_width_is_not_said() -> None:
    turned = Quantity(180.0, "°", plausible=(Quantity(179.9, "°"), Quantity(180.0, "°")))
    assert turned.plausibly == ""
    assert replace(turned, plausible=(Quantity(90.0, "°"), turned)).plausibly == " (plausible ±90° to ±180°)"


@pytest.mark.parametrize(
    ("least", "most", "said"),
    [
        (Quantity(0.0, "°"), Quantity(42.0, "°"), "plausible none, or up to ±42°"),
        (Quantity((1.0, 1.0), "×"), Quantity((0.8, 1.25), "×"), "plausible none, or up to ×0.80 … ×1.25"),
        (Quantity(30.0, "°"), Quantity(inf, "°"), "plausible at least ±30°, not determined above"),
        (Quantity((-1.0, 1.0), "px"), Quantity((-inf, inf), "px"), "plausible at least ±1.0 px, not determined above"),
        (
            Quantity((0.9, 1.1), "×"),
            Quantity((0.0, inf), "×"),
            "plausible at least ×0.90 … ×1.10, not determined above",
        ),
    ],
)
def test_a_plausible_range_may_be_open(least: Quantity, most: Quantity, said: str) -> None:
    learned = Quantity(1.0, least.unit, (least, most))
    assert learned.plausible_words == said
    assert learned.plausibly == f" ({said})"
    assert learned.plausible[0].is_nothing is said.startswith("plausible none")


def test_lists_in_words() -> None:
    assert [listed(list(names)) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
