"""Images in the layouts that people have: read right, refused, or warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp import InvariantGPClassifier, compare
from orbitgp.estimators.data import channels_first, check_images
from orbitgp.orbits import Flip, Points, Rotation, Scale, Warp

pytestmark = pytest.mark.usefixtures("one_start")

rng = np.random.default_rng(0)
COLOUR = np.zeros((12, 3, 6, 5))
COLOUR[:, :, 1:5, 1:4] = rng.uniform(size=(12, 3, 4, 3))
LABELS = np.arange(12) % 2
QUICK = {"max_steps": 2, "random_state": 0}


def test_channels_last_are_the_same_images() -> None:
    last = (255 * np.moveaxis(COLOUR, 1, -1)).astype(np.uint8)
    first = np.moveaxis(last, -1, 1)
    a, b = (InvariantGPClassifier(Rotation(30), **QUICK).fit(x, LABELS) for x in (first, last))
    assert a.input_shape_ == b.input_shape_ == (3, 6, 5)
    np.testing.assert_array_equal(a.predict_proba(first), b.predict_proba(last))


def test_what_is_not_channels_last_stays() -> None:
    for shape in ((4, 3, 8, 3), (4, 8, 8), (4, 1, 8, 8), (4, 8, 8, 8)):
        x = np.zeros(shape)
        assert channels_first(x) is x
    assert channels_first(np.zeros((4, 8, 8, 1))).shape == (4, 1, 8, 8)


def test_an_alpha_channel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha channel: blend .* X\[\.\.\., :3\]"):
        InvariantGPClassifier("rotation").fit(np.ones((4, 8, 8, 4)), [0, 1, 0, 1])


def test_images_of_one_colour_are_refused() -> None:
    x = np.arange(4.0)[:, None, None] * np.ones((4, 8, 8))
    with pytest.raises(ValueError, match="of one colour all over"):
        InvariantGPClassifier("rotation").fit(x, [0, 1, 0, 1])


@pytest.mark.slow
def test_a_border_of_zeros_that_is_asked_for_is_warned_of_where_the_background_is_not_zero() -> None:
    ink, zeros = COLOUR[:, 0], Rotation(30, border="zero")
    about = "border of these images is about {}, and what lies outside an image counts as 0 for Rotation: take border="
    with pytest.warns(UserWarning, match=about.format("1")):
        InvariantGPClassifier(zeros, **QUICK).fit(1 - ink, LABELS)
    with pytest.warns(UserWarning, match="border of these images is about -0"):
        InvariantGPClassifier(zeros, **QUICK).fit((ink - ink.mean()) / ink.std(), LABELS)
    with pytest.warns(UserWarning, match="border") as said:
        compare(1 - ink, LABELS, ["none", "rotation(30, border='zero')"], **QUICK, inference="exact")
    assert len([w for w in said if "border" in str(w.message)]) == 1
    InvariantGPClassifier(zeros, **QUICK).fit(ink, LABELS)
    InvariantGPClassifier(Flip(), **QUICK).fit(1 - ink, LABELS)  # a mirror brings in nothing


@pytest.mark.slow
def test_the_data_choose_the_border_of_warps_and_a_file_keeps_it(tmp_path: Path) -> None:
    ink, texture = COLOUR[:, 0], rng.uniform(size=(12, 6, 5))
    for x, expected in ((ink, "zero"), (1 - ink, "edge"), (texture, "reflect")):
        orbit = Flip() * Rotation(30) * Scale() if expected == "edge" else Rotation(30)
        model = InvariantGPClassifier(orbit, inference="exact", **QUICK).fit(x, LABELS)
        assert all(part.border is None for part in orbit.modules() if isinstance(part, Warp))  # it is the user's
        assert {part.outside for part in model.orbit_.modules() if isinstance(part, Warp)} == {expected}
        model.save(tmp_path / "model.safetensors")
        again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert {part.outside for part in again.orbit_.modules() if isinstance(part, Warp)} == {expected}
        np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))


def test_a_warp_whose_constructor_takes_no_border_keeps_zeros_and_says_so() -> None:
    class Twist(Warp):
        num_draws = 1

        def __init__(self) -> None:
            super().__init__()

        def points(self, p: Points, u: Any) -> Points:
            return p

    for orbit in (Twist(), Flip() * Twist()):
        with pytest.warns(UserWarning, match="counts as 0 for Twist"):
            check_images(1 - COLOUR[:, 0], orbit)
    both = Twist() * Rotation(30)
    check_images(COLOUR[:, 0], both)
    assert both.outside == "zero"
    given = Scale(border="edge") * Rotation(30)
    check_images(rng.uniform(size=(12, 6, 5)), given)
    assert [part.border for part in given.parts] == ["edge", "edge"]


def test_pixels_beyond_the_range_of_pixels_are_warned_of() -> None:
    ink = COLOUR[:, 0]
    with pytest.warns(UserWarning, match=r"the pixels of X go from 0 to 2\.5\de\+06"):
        check_images(2.55e6 * (ink > 0.5))
    check_images(255 * ink)  # bytes as numbers are usual


def test_images_that_would_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((4, 200, 200), np.float32)
    x[:, 50:150, 50:150] = rng.uniform(size=(4, 100, 100))
    monkeypatch.setattr("orbitgp.estimators.validation.free_memory", lambda device: 1e8)
    settings = {"inference": "sparse", "max_steps": 1, "random_state": 0}
    with pytest.raises(ValueError, match=r"inputs of shape \(200, 200\) are too large: .* Make them smaller"):
        InvariantGPClassifier(Rotation(30), **settings).fit(x, LABELS[:4])
    small = x[:, ::20, ::20]
    assert InvariantGPClassifier(Rotation(30), **settings).fit(small, LABELS[:4]).inference_ == "sparse"


def test_an_orbit_may_be_given_in_words() -> None:
    ink = COLOUR[:, 0]
    a, b = (InvariantGPClassifier(orbit, **QUICK).fit(ink, LABELS) for orbit in ("rotation(30)", Rotation(30)))
    assert a.orbit_.describe() == b.orbit_.describe()
    with pytest.raises(ValueError, match="did you mean rotation"):
        InvariantGPClassifier("rotatoin").fit(ink, LABELS)
