"""A mirror image counts fully where left and right are no classes, and not at all where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orbitgp import InvariantGPClassifier
from orbitgp.orbits import Flip, Weighted


def strokes(count: int, sided: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rising and falling strokes; or steep and shallow ones, of either hand."""
    rng = np.random.default_rng(0)
    x, y, along = rng.normal(size=(count, 12, 12)).astype(np.float32) * 0.15, np.arange(count) % 2, np.arange(5)
    for image, label, (row, column) in zip(x, y, rng.integers(2, 5, (count, 2)), strict=True):
        falls = bool(label) if sided else rng.random() < 0.5
        down = along if sided or label else along // 2
        image[row + down, column + (along if falls else along[::-1])] += 1.0
    return x, y


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["auto", "gaussian"])
@pytest.mark.parametrize("sided", [True, False])
def test_the_weight_of_a_mirror_image_is_learned(sided: bool, likelihood: Any) -> None:
    model = InvariantGPClassifier(Weighted(Flip()), likelihood=likelihood, random_state=0).fit(*strokes(80, sided))
    weight, (low, high) = model.orbit_.describe()["weight"], model.plausible_["weight"]
    assert weight < 0.05 if sided else weight > 0.45
    assert low <= weight <= high
    assert high < 0.15 if sided else low > 0.2
