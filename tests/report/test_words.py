"""What was learned, in words: the phrases of orbits, and what is left out of them."""

from __future__ import annotations

import re
from math import inf

import pytest

from orbitgp.orbits.description import Description, Quantity, number
from orbitgp.orbits.parse import make_orbit
from orbitgp.report.finding import finding
from orbitgp.report.words import learned, learned_sentence, nats, quantity_label


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rotation(17)", "Learned rotations within ±17°;"),
        (
            "affine(angle=(-16, 40), scale_x=None, scale_y=None, shear=None)",
            "rotations from −16° to +40° and shifts within ±1.0 px",
        ),
        ("scale(1.25)", "scaling by ×0.80 to ×1.25"),
        ("translation(1, 2)", "shifts within ±1.0 px sideways and within ±2.0 px up and down"),
        ("affine*deformation(0.4, 9)", "local displacements of 0.40 px (smooth over 9.0 px)"),
        ("noise(0.2)", "noise of standard deviation 0.20"),
        ("flip*rotation", "mirror images and rotations within ±45°"),
        ("flip*rotate90", "a set of 8 transformations"),
        ("none", "No invariance: a plain Gaussian process."),
        ("rotation(17)*scale(1.001)", "Learned rotations within ±17° (no scaling);"),
        (
            "affine(angle=(-16, 16), scale_x=(0.9999, 1), scale_y=(0.9, 1.1))",
            "±16°, scaling by ×0.90 to ×1.10 up and down,",
        ),
        ("affine(scale_x=(0.9999, 1), scale_y=(0.9, 1.1))", " (no scaling sideways); not compared"),
        (
            "affine(scale_x=(0.99, 1.01), scale_y=(0.99, 1.01), shear=(-0.0016, 0.0016))",
            " (no scaling and no shears); not",
        ),
        ("scale(1.001)", "Learned no scaling; not compared"),
        ("deformation(0.01, 9)", "Learned no local displacements; not compared"),
        ("rotation(17)*deformation(0.01, 9)", "Learned rotations within ±17° (no local displacements);"),
    ],
)
def test_words(text: str, said: str) -> None:
    assert said in finding(make_orbit(text).describe(), None, num_data=100).text


def test_the_width_of_an_own_orbit_is_no_smoothing() -> None:
    jitter = Description("Jitter", {"width": Quantity(5.2)})
    assert finding(jitter, 10.0, num_data=100).text.startswith("Insensitive to Jitter of width 5.2;")
    assert quantity_label("width", jitter) == "width"
    assert "smoothing up to" in finding(make_orbit("smoothing", (1, 50)).describe(), 10.0, num_data=100).text


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (Description("Tint", {"scale": Quantity(0.2)}), "Learned Tint of scale 0.20;"),
        (
            Description(
                "Wave", {"up": Quantity(2.0, "m", (Quantity(1.0, "m"), Quantity(3.0, "m"))), "pace": Quantity(9.5)}
            ),
            "Learned Wave of up 2.0 m (plausible 1.0 m to 3.0 m) and pace 9.5;",
        ),
        (
            Description.join([make_orbit("rotation(17)").describe(), Description("Jitter", {"width": Quantity(0.3)})]),
            "Learned Jitter of width 0.30 and rotations within ±17°;",
        ),
        (Description("Jitter", {"width": Quantity(0.0)}), "Learned no Jitter;"),
    ],
)
def test_an_orbit_of_ones_own_is_called_by_its_name(description: Description, said: str) -> None:
    assert finding(description, None, num_data=100).text.startswith(said)
    assert finding(description.with_plausible({}), None, num_data=100).text.startswith(re.sub(r" \(.*?\)", "", said))


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("rotation", ["rotations"]),
        ("noise", ["noise: standard deviation"]),
        ("translation", ["shifts sideways", "shifts up and down"]),
        ("deformation", ["local displacements", "smoothness of displacements"]),
        ("scale", ["scaling"]),
    ],
)
def test_quantities_have_names_that_say_of_what(text: str, labels: list[str]) -> None:
    described = make_orbit(text).describe()
    assert [quantity_label(name, described) for name in described] == labels


def test_numbers_in_words() -> None:
    rotation = make_orbit("rotation").describe()
    assert finding(rotation, 41_234, num_data=100).text.endswith("evidence +41,200 nats over no invariance.")
    assert "3.2 nats lower" in finding(rotation, -3.2, num_data=100).text
    assert [nats(v) for v in (0.04, 3.21, 999.4, 1234.0, -41_234.0)] == [
        "0.0 nats",
        "3.2 nats",
        "999 nats",
        "1,230 nats",
        "−41,200 nats",
    ]
    assert [number(v) for v in (0.0, 0.0123, -1.0, 12.3, 12_345.0)] == ["0", "0.012", "−1.0", "12", "12,345"]
    assert str(Quantity((-0.034, 0.0048))) == "−0.034 … +0.005"
    assert str(Quantity((0.9, 1.167), "×")) == "×0.90 … ×1.17"


def test_what_is_plausible_of_many_quantities_is_no_sentence() -> None:
    two = {"degrees": Quantity(17.0, "°"), "shear": Quantity((-0.1, 0.1))}
    plausible = {
        "degrees": (Quantity(16.0, "°"), Quantity(18.0, "°")),
        "shear": (Quantity((-0.05, 0.05)), Quantity((-0.2, 0.2))),
        "thickness": (Quantity((-0.1, 0.1), "px"), Quantity((-0.3, 0.3), "px")),
    }
    said = finding(Description("Affine", two).with_plausible(plausible), 10.0, num_data=100).text
    assert said.count("plausible") == 2
    three = {**two, "thickness": Quantity((-0.2, 0.2), "px")}
    said = finding(Description("Affine", three).with_plausible(plausible), 10.0, num_data=100).text
    assert said.count("plausible") == 0
    assert "rotations within ±17°" in said


def test_no_displacements_are_smooth_beyond_the_input() -> None:
    """2.6 s are no finding about signals of 0.6 s: all that can be told is that a displacement hardly varies within
    one."""
    described = make_orbit("timewarp(0.1, 2.6, interval=0.01, unit='s')").describe()
    assert "(smooth over 2.6 s)" in learned_sentence(described.within(3.0))
    assert learned_sentence(described.within(0.6)) == "local displacements of 0.10 s (smooth over the whole input)"
    assert described.within(0.6).rows()[1] == ("smoothness", "more than 0.60 s")


def test_what_may_as_well_be_next_to_nothing_is_not_determined() -> None:
    ranges = {"degrees": Quantity(17.0, "°"), "shift_x": Quantity((-1.1, 1.1), "px"), "shear": Quantity((-0.4, 0.4))}
    plausible = {"shift_x": (Quantity((-0.0092, 0.0092), "px"), Quantity((-4.3, 4.3), "px"))}
    described = Description("Affine", ranges).with_plausible({**plausible, "shear": (Quantity(0.0), Quantity(inf))})
    assert learned_sentence(described) == "rotations within ±17° (shifts sideways and shears not determined)"
    alone = described.only(["shear"])
    assert learned_sentence(alone) == "shears within ±0.40 (not determined)"


@pytest.mark.parametrize(("unit", "said"), [("s", "shifts within ±0.030 s"), ("px", "no shifts")])
def test_what_is_small_depends_on_the_unit(unit: str, said: str) -> None:
    assert learned(Description("Shift", {"shift": Quantity((-0.03, 0.03), unit)})) == [said]
