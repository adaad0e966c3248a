"""The first random problems of many; ``make fuzz`` tries ten thousand."""

from __future__ import annotations

import pytest

from tests.fuzz.invariants import bad, refusal
from tests.fuzz.problems import random_problem


@pytest.mark.slow
def test_random_problems() -> None:
    wrong = {str(random_problem(seed)): found for seed in range(4) if (found := bad(seed))}
    assert not wrong


@pytest.mark.slow
def test_most_problems_are_not_refused() -> None:
    """A fuzzer whose problems are refused tests nothing."""
    assert sum(refusal(seed) is not None for seed in range(1000, 1006)) <= 1
