"""Test cases in words: what is uncertain, and with how many digits an error is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orbitgp.report.cases import percent, score


class Sure:
    """Predicts what it is told to, with given probabilities of the second class."""

    classes_ = np.array(["no", "yes"])

    def __init__(self, second: Any) -> None:
        self.second = np.asarray(second)

    def predict_proba(self, x: Any) -> np.ndarray:
        return np.stack([1 - self.second, self.second], 1)


def test_nothing_is_called_uncertain_that_is_certain() -> None:
    y = np.array(["no", "yes", "yes"])
    sure = score(Sure([1e-9, 0.9993, 0.99996]), np.zeros((3, 1)), y)
    assert sure.uncertain == []
    assert sure.all_certain == "None: even the least certain prediction has a confidence of 99.9 %."
    unsure = score(Sure([1e-9, 0.997, 0.3]), np.zeros((3, 1)), y)
    assert [(case.said, case.truth) for case in unsure.uncertain] == [("no (70 %)", "yes (given 30 %)")]
    assert unsure.all_certain == ""
    assert [percent(p) for p in (0.0, 1e-6, 0.0004, 0.004, 0.5, 0.994, 0.997, 0.9999, 0.99999, 1.0)] == [
        "<0.01 %",
        "<0.01 %",
        "0.04 %",
        "0.4 %",
        "50 %",
        "99 %",
        "99.7 %",
        "99.99 %",
        ">99.99 %",
        ">99.99 %",
    ]


@pytest.mark.parametrize(("count", "error"), [(45, "2 %"), (450, "0.2 %"), (1000, "0.1 %"), (10_000, "0.01 %")])
def test_an_error_has_the_digits_that_tell_one_case(count: int, error: str) -> None:
    y = np.repeat("no", count)
    assert score(Sure([0.9, *[0.1] * (count - 1)]), np.zeros((count, 1)), y).headline == ("test error", error)
