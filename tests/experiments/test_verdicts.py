"""Verdicts against the truth: the problems are what the page says, and outcomes are counted as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments import verdicts
from orbitgp import InvariantGPRegressor
from orbitgp.orbits import Identity


@pytest.mark.slow
def test_problems_come_from_their_number() -> None:
    some = [verdicts.generated(number) for number in range(0, verdicts.COUNT, 26)]
    for number, made in zip(range(0, verdicts.COUNT, 26), some, strict=True):
        again = verdicts.generated(number)
        np.testing.assert_array_equal(made.x, again.x)
        np.testing.assert_array_equal(made.y, again.y)
        assert 40 <= len(made.x) <= 150
        assert 2 <= len(made.orbits) <= 3
        assert isinstance(made.orbits["none"], Identity)
    assert {made.likelihood for made in some} == {None, "dirichlet"}
    assert len(verdicts.names()) == verdicts.COUNT + 6


def test_the_planted_average_is_invariant() -> None:
    """A function that is averaged over all cyclic shifts has one value for a signal and its shifts."""
    x = np.random.default_rng(0).normal(size=(3, 5))
    g = verdicts.random_functions(np.random.default_rng(1), 5, 1.0, 2)
    orbit = verdicts.rolls(5, 2)
    found = verdicts.averaged(g, orbit, x)
    np.testing.assert_allclose(found, verdicts.averaged(g, orbit, np.roll(x, 1, 1)))
    np.testing.assert_allclose(found, np.mean([g(np.roll(x, by, 1)) for by in range(5)], 0))


def record(problem: str, part: str, **further: Any) -> dict[Any, Any]:
    return {"settings": {"problem": problem, "part": part}, "title": "made by hand", "seconds": 1.0, **further}


@pytest.mark.parametrize(
    ("tied", "said"), [(["a"], "right"), (["a", "b"], "cannot tell"), (["b"], "wrong"), (["b", "c"], "wrong")]
)
def test_outcomes(tied: list[str], said: str) -> None:
    truth = record("0", "truth", evidence={"a": 30.0, "b": 5.0, "c": 0.0})
    found = [truth, record("0", "auto", tied=tied)]
    (outcome,) = verdicts.outcomes(found, "auto")
    assert (outcome.gap, outcome.said) == (25.0, said)
    claims = verdicts.check(found)
    assert claims["auto: certain and wrong never"] == (said != "wrong")
    assert claims[f"auto: certain in 80 % of the problems above 20 nats ({int(said == 'right')} of 1)"] == (
        said == "right"
    )
    assert ("is certain and wrong of 0" in verdicts.table(found)) == (said == "wrong")


@pytest.mark.slow
def test_the_truth_of_a_plain_model_is_its_exact_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no symmetry can matter, the truth differs from the fitted evidence by the units of the targets alone."""
    monkeypatch.setattr(verdicts, "STARTS", 2)
    which = verdicts.problem("parity")
    best = verdicts.best_of_starts(which, "none")[0]
    model = InvariantGPRegressor(inference="exact").fit(which.x, which.y)
    assert model.evidence_.value + len(which.x) * np.log(which.y.std()) == pytest.approx(best, abs=0.1)
