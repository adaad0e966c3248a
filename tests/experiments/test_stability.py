"""The experiment on stability: when evidences agree, and what a fit records."""

from __future__ import annotations

import pytest
import torch

from experiments import stability
from experiments.harness import Records


def records(*values: float, stderr: float = 0.0) -> Records:
    said = {"settings": {"orbit": "shear", "rows": 9}, "stderr": stderr, "draws": 32, "data": 9}
    return [{**said, "value": value} for value in values]


@pytest.mark.parametrize(("found", "same"), [(records(-3.0, -2.1), True), (records(-3.0, -1.9), False)])
def test_one_nat_is_the_most_that_evidences_may_differ(
    found: list[dict[str, dict[str, int | str] | float]], same: bool
) -> None:
    assert stability.agree(found) == same
    assert stability.check(found) == {"shear: all fits agree": same}
    assert stability.table(found).splitlines()[-1].split(" | ")[-1] == ("yes |" if same else "no |")


def test_or_twice_the_error_of_their_difference() -> None:
    assert stability.agree(records(-3.0, -1.0, stderr=0.71))
    assert not stability.agree(records(-3.0, -1.0, stderr=0.7))


@pytest.mark.slow
def test_rows_in_another_order_are_the_same_data() -> None:
    """All variants change what the learner is given, and none changes the problem."""
    found = [stability.Fit("flip", 12, variant).measure("cpu") for variant in ("two threads", "rows 1", "inputs 1")]
    torch.set_num_threads(1)
    assert stability.agree(found)
    assert [record["data"] for record in found] == [12] * 3
