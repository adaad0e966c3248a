"""The few numbers in the rules of the explanation are those of the code."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy.stats import chi2

from orbitgp import TrainingOptions
from orbitgp.planning.sparse import SLOW_FIT_FACTOR
from orbitgp.report.finding import nats_needed
from orbitgp.training.run import _SEARCH_SHARE

PAGES = Path(__file__).parents[2] / "docs" / "explanation"
WORDS = {0.5: "half", 4.0: "four times"}


def text(page: str) -> str:
    return " ".join((PAGES / f"{page}.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("training", f"`exact_seconds` ({TrainingOptions().exact_seconds:.0f} by default)"),
        ("training", f"Exact inference may take {WORDS[SLOW_FIT_FACTOR]} as long"),
        ("training", f"Candidates may take {WORDS[_SEARCH_SHARE]} of the time for learning"),
        ("ranges", f"less than {chi2.isf(0.05, 1) / 2:.2f} nats below its top"),
        ("verdicts", f"{nats_needed(0):.1f} nats are not {math.exp(round(nats_needed(0), 1)):.0f} to 1"),
    ],
)
def test_a_page_says_what_the_code_has(page: str, said: str) -> None:
    assert said in text(page)
