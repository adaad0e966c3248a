"""Shifts and warps of known size are found: the learner reaches the top of the profile, down and up from its start.

The evidence need not peak at the planted size, so the learner is held against a profile over fixed sizes.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor
from orbitgp.orbits import Orbit, TimeShift, TimeWarp

TIME = np.arange(40)


def planted(orbit: Orbit, rows: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bumps of two kinds, each changed by one draw of the orbit; the target is the width of the bump, and its kind.

    The kinds differ in their place by far more than the orbit changes it. So an orbit that is too wide confuses them.
    """
    rng = np.random.default_rng(seed)
    width, kind = rng.uniform(1.5, 4.0, rows), rng.integers(0, 2, rows)
    x = np.exp(-0.5 * ((TIME - 11 - 17 * kind[:, None]) / width[:, None]) ** 2)
    signals = torch.tensor(x)
    u = torch.tensor(rng.uniform(size=(rows, 1, orbit.draws_for(signals.shape[1:]))))
    with torch.no_grad():
        moved = orbit.double().transform(signals, u)[:, 0].numpy()
    return moved + 0.02 * rng.normal(size=moved.shape), width + 4 * kind + 0.05 * rng.normal(size=rows)


def fitted(orbit: Orbit, x: np.ndarray, y: np.ndarray) -> InvariantGPRegressor:
    return InvariantGPRegressor(orbit, num_samples=8, random_state=0).fit(x, y)


CASES = {
    "shift": (
        lambda value, learn: TimeShift(value, learn=learn),
        lambda: TimeShift(5.0),
        (1.0, 5.0, 12.0),
        25.0,
    ),
    "amplitude": (
        lambda value, learn: TimeWarp(value, 10.0, frozen=["smoothness"] if learn else ["amplitude", "smoothness"]),
        lambda: TimeWarp(2.0, 10.0),
        (0.2, 2.0, 5.0),
        0.1,
    ),
}


def climbed(model: InvariantGPRegressor) -> float:
    """The evidence with the draws that were learned from: the same for all models."""
    return float(model.history_[-1]["bound"])


@pytest.mark.slow
@pytest.mark.parametrize("quantity", CASES)
def test_the_learner_reaches_the_top_of_the_profile(quantity: str) -> None:
    make, truth, values, start = CASES[quantity]
    x, y = planted(truth())
    profile = {value: climbed(fitted(make(value, False), x, y)) for value in values}
    top = max(profile.values())
    plain = climbed(InvariantGPRegressor(None, random_state=0).fit(x, y))
    assert top > plain + 2  # there is something to find
    model = fitted(make(start, True), x, y)
    assert climbed(model) > top - 0.5, (profile, model.orbit_.describe())
    found = model.orbit_.describe()[quantity]
    size = max(found) if isinstance(found, tuple) else found
    near = [value for value, evidence in profile.items() if evidence > top - 5]
    assert 0.6 * min(near) <= size <= 1.6 * max(near), (profile, size)
