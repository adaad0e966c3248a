"""Stains of generated white blood cells: variation that was planted is learned, and strength that is the class is
kept."""

from __future__ import annotations

import numpy as np
import pytest

from orbitgp import InvariantGPClassifier

SIDE = 8
HAEMATOXYLIN, EOSIN = np.array([0.65, 0.70, 0.29]), np.array([0.07, 0.99, 0.11])
DYES = np.stack([HAEMATOXYLIN / np.linalg.norm(HAEMATOXYLIN), EOSIN / np.linalg.norm(EOSIN)])
PLANTED = 1.4  # each dye of each cell times or over up to this factor


def cells(seed: int, strength: bool) -> tuple[np.ndarray, np.ndarray]:
    """Purple nuclei in pink cells. The class is whether the nucleus is of medium size; or the stain of medium strength.

    No line through the amounts of dye tells either: a linear function of them is left as it is by a mean over factors.
    """
    rng, y = np.random.default_rng(seed), np.arange(40 if strength else 56) % 2
    kind = np.where(y, 0, rng.choice([-1, 1], len(y)))
    radius = 1.7 + 0.6 * (rng.permutation(kind) if strength else kind) + 0.05 * rng.normal(size=len(y))
    place = np.arange(SIDE) - (SIDE - 1) / 2
    distance = np.hypot(place[:, None], place)
    nucleus = 1 / (1 + np.exp(2 * (distance - radius[:, None, None])))
    body = np.broadcast_to(0.15 + 0.35 / (1 + np.exp(2 * (distance - 3.2))), nucleus.shape)
    varied = PLANTED ** (np.stack([kind, kind], 1) if strength else rng.uniform(-1, 1, (len(y), 2)))
    x = np.exp(-np.einsum("nihw,ic->nchw", varied[:, :, None, None] * np.stack([nucleus, body], 1), DYES))
    return (x + 0.02 * rng.normal(size=x.shape)).astype(np.float32), y


@pytest.mark.slow
def test_stains_that_vary_are_learned() -> None:
    x, y = cells(0, strength=False)
    plain, learned = (
        InvariantGPClassifier(orbit, likelihood="gaussian", num_samples=8, random_state=0).fit(x, y)
        for orbit in (None, "stain")
    )
    assert learned.evidence_.value > plain.evidence_.value + 8
    # A learned range says how far an input may go: as far as was planted, or a little farther.
    low, high = learned.orbit_.describe()["haematoxylin"]
    assert 0.9 * PLANTED < high < 1.7 * PLANTED
    assert low == pytest.approx(1 / high)
    least, most = (ends[1] for ends in learned.plausible_["haematoxylin"])
    assert 1 < least < high < most


@pytest.mark.slow
def test_strength_of_a_stain_that_is_the_class_is_kept() -> None:
    x, y = cells(1, strength=True)
    plain, learned = (
        InvariantGPClassifier(orbit, likelihood="gaussian", num_samples=8, random_state=0).fit(x, y)
        for orbit in (None, "stain")
    )
    assert learned.evidence_.value < plain.evidence_.value + 1
    described = learned.orbit_.describe()
    widths = sorted(high for _, high in described.values())  # one dye is enough to tell
    assert widths[0] < 1.05
    assert widths[1] < 1.25
