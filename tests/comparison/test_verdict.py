"""The verdict of a comparison: the rule with intervals made by hand, against draws from them, and its words."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from orbitgp.comparison.verdict import Difference, Standing, leaders, verdict
from orbitgp.report.finding import nats_needed


def point(name: str, value: float) -> Standing:
    return Standing(name, value, value, value)


def test_more_is_needed_of_an_orbit_that_learned_more_and_where_more_were_tried() -> None:
    """Half a chi-squared variable of six degrees of freedom exceeds 6.3 nats in one case of twenty (tables of
    scipy)."""
    made = [Standing("a", 106.4, 106.4, 106.4, learned=6), point("b", 100.0)]
    assert len(leaders(made)[0]) == 2
    assert len(leaders([replace(made[0], learned=0), made[1]])[0]) == 1
    assert len(leaders([replace(made[0], learned=0, tried=20), made[1]])[0]) == 2
    assert Difference(point("a", nats_needed(0, tried=1) + 0.01), point("b", 0.0)).certain  # of a single orbit


def test_intervals_that_do_not_overlap_are_certain() -> None:
    made = [Standing("a", 100.0, 99.0, inf), Standing("b", 80.0, 79.0, 98.9)]
    assert leaders(made)[0] == made[:1]
    assert verdict(made) == ["The data support a: +20 (at least +0) nats over b."]


@pytest.mark.parametrize(
    "made",
    [
        [Standing("a", 100.0, 99.0, 101.0), Standing("b", 80.0, 79.0, 99.1)],  # they overlap
        [Standing("a", 100.0, 99.0, 101.0), Standing("b", 80.0, 79.0, inf)],  # nothing is known above
        [Standing("a", 100.0, 70.0, 130.0), point("b", 80.0)],  # the best may be lower
        [point("a", 100.0), point("b", 97.5)],  # next to nothing
    ],
)
def test_others_are_not(made: list[Standing]) -> None:
    assert [s.name for s in leaders(made)[0]] == ["a", "b"]
    assert verdict(made)[0] == "Cannot tell a and b apart."


def test_the_rule_against_draws_from_the_intervals() -> None:
    """Whenever it is certain, no evidence within the intervals makes the other one better."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        low, width = rng.normal(0, 10, 2).tolist(), rng.exponential(5, 2).tolist()
        a, b = (Standing(n, low[i] + width[i] / 2, low[i], low[i] + width[i]) for i, n in enumerate("ab"))
        first, against = leaders([a, b])
        (difference,) = against.values()
        draws = [rng.uniform(s.low, s.high, 200) for s in (difference.better, difference.worse)]
        assert len(first) == 2 or np.all(draws[0] > draws[1])


def test_words() -> None:
    made = [
        point("a", 100.0),
        Standing("b", 98.0, 97.0, 140.0, "a loose bound", "512 inducing points"),
        point("c", 10.0),
    ]
    sentences = verdict(made, plain="c")
    assert sentences[0] == "Cannot tell a and b apart."
    assert sentences[1] == "What is certain of a: +90 nats over no invariance."
    assert sentences[2] == (
        "a against b: the evidence of b lies between 97 and 140 (a loose bound); "
        "to tell would take 512 inducing points for b."
    )
    assert "so not whether any invariance helps" in verdict([point("a", 100.0), point("c", 99.0)], plain="c")[0]
    assert "differ by 1.0 nats, and chance alone may give" in verdict([point("a", 100.0), point("c", 99.0)])[1]
    assert "no invariance among these" in verdict([point("a", 100.0), point("b", 10.0)], plain="a")[0]
    assert str(Difference(Standing("a", 100.0, 90.0, 110.0), point("b", 50.0))) == "+50 (+40 to +60)"
    assert str(Difference(Standing("a", 100.0, 99.6, 101.0), point("b", 100.0))) == "+0 (+0 to +1)"
