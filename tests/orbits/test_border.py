"""The background of images: dark ink on white, bars of a wide picture, and a photograph."""

from __future__ import annotations

import numpy as np

from orbitgp.datasets import digits
from orbitgp.orbits.images.border import border_level


def test_the_level_of_a_border() -> None:
    rng = np.random.default_rng(0)
    ink = np.zeros((12, 6, 5))
    ink[:, 1:5, 1:4] = rng.uniform(size=(12, 4, 3))
    assert border_level(ink) is None
    assert border_level(255 * ink) is None
    assert border_level(1 - ink) == 1
    assert border_level(255 * (1 - ink)) == 255
    barred = 1 - ink
    barred[:, [0, -1]] = 0  # a wide picture in a square, with bars above and below
    assert border_level(barred) == 1
    assert border_level(digits().x_train) is None
    assert border_level(rng.uniform(0.7, 1.0, size=(5, 9, 9))) > 0.7  # a photograph before a bright wall
