"""The experiment on stability: when evidences agree, and what a fit records."""

from __future__ import annotations

import pytest

from experiments import stability


def records(*values: float, stderr: float = 0.0) -> list[stability.Record]:
    return [{"rows": 9, "orbit": "shear", "value": value, "stderr": stderr, "draws": 32} for value in values]


@pytest.mark.parametrize(("found", "agree"), [(records(-3.0, -2.1), True), (records(-3.0, -1.9), False)])
def test_one_nat_is_the_most_that_evidences_may_differ(found, agree):
    assert stability.agrees(found) == agree
    assert str(agree) in stability.summary(found)


def test_or_twice_the_error_of_their_difference():
    assert stability.agrees(records(-3.0, -1.0, stderr=0.71))
    assert not stability.agrees(records(-3.0, -1.0, stderr=0.7))


@pytest.mark.slow
def test_rows_in_another_order_are_the_same_data():
    """All four variants change what the learner is given, and none changes the problem."""
    found = [stability.solve("noise", 12, variant) for variant in ("one thread", "two threads", "rows 1", "inputs 1")]
    assert stability.agrees(found)
    assert [record["rows"] for record in found] == [12] * 4
