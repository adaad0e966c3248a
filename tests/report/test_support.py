"""How much evidence is chance: against simulated maxima of Gaussian likelihoods."""

from __future__ import annotations

import numpy as np
import pytest

from orbitgp.report.support import FALSE_SUPPORT, nats_needed


@pytest.mark.parametrize("learned", [1, 2, 6])
@pytest.mark.parametrize("tried", [1, 3])
def test_false_support_is_as_rare_as_it_says(learned: int, tried: int):
    """Log likelihood of k means at their best, less that of the true ones: half the squared length of k normal numbers."""
    rng = np.random.default_rng(0)
    gains = 0.5 * np.square(rng.normal(size=(40_000, tried, learned))).sum(-1).max(-1)
    share = np.mean(gains > nats_needed(learned, tried))
    assert share <= FALSE_SUPPORT + 4 * np.sqrt(FALSE_SUPPORT / len(gains))
    assert np.mean(gains > nats_needed(learned, tried) - 3.0) > FALSE_SUPPORT  # three nats less would not do


def test_a_fixed_model_needs_the_odds_of_a_false_word():
    """P(likelihood ratio > t) <= 1 / t under the true model: two Gaussian means, a distance apart that makes it tightest."""
    rng = np.random.default_rng(1)
    for distance in (1.0, 2.0, 3.0):
        x = rng.normal(size=200_000)
        gains = distance * x - 0.5 * distance**2
        assert np.mean(gains > nats_needed(0)) <= FALSE_SUPPORT
