"""Intervals of the evidence and what narrows them: the loop with stand-ins for models."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from orbitgp import TrainingOptions
from orbitgp.comparison import refine
from orbitgp.comparison.parallel import Job, Trained
from orbitgp.comparison.refine import refinement, standing, train_and_refine, undecided
from orbitgp.comparison.verdict import Standing, leaders, verdict
from orbitgp.estimators import InvariantGPRegressor
from orbitgp.inference.evidence import Evidence
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, Identity, Orbit

pytestmark = pytest.mark.usefixtures("one_start")

ROWS = 50


class Fake(InvariantGPRegressor):
    """A stand-in for a fitted model: a bound with a slack, or an exact value where ``upper`` is None."""

    def __init__(
        self, value: float, upper: float | None = None, points: int = 8, draws: int | None = None, error: float = 0.0
    ) -> None:
        self.inference_ = "exact" if upper is None else "sparse"
        self.evidence_ = Evidence(value, error, ROWS, draws, "Gaussian", upper is None, upper)
        self.model_ = InvariantGP(RBFKernel().double(), Identity(), torch.zeros(points, 2, dtype=torch.float64))
        self.likelihood_ = Gaussian()

    @property
    def converged_(self) -> bool:
        return self.evidence_.converged

    @converged_.setter
    def converged_(self, value: bool) -> None:
        self.evidence_ = replace(self.evidence_, converged=value)


def bound(top: float, points: int) -> Fake:
    """It approaches the top as points double. Half of what the slack costs is not seen at the learned
    hyperparameters."""
    slack = 400.0 / points
    return Fake(top - 2 * slack, top - slack, points)


def trained(job: Job, model: Fake) -> Trained:
    return Trained(job, 1.0, model)


def job(name: str, orbit: Orbit | None = None, **settings: Any) -> Job:
    return Job(name, orbit or GaussianNoise(0.1), 0, InvariantGPRegressor, {"num_inducing": 8, **settings})


def run(tops: dict[str, float], seconds: float | None = None, **settings: Any) -> Any:
    told = []

    def train(jobs: list[Job]) -> Any:
        told.append([(j.name, j.purpose) for j in jobs])
        exact = [j.purpose == "exact inference" for j in jobs]
        tried = zip(jobs, exact, strict=True)
        return [
            trained(j, Fake(tops[j.name]) if e else bound(tops[j.name], j.settings["num_inducing"])) for j, e in tried
        ]

    jobs = [job(name, **settings) for name in tops]
    standings, models = train_and_refine(jobs, ROWS, train, seconds, n_jobs=1)
    return standings, models, told


def test_the_rival_is_refined_until_it_is_beaten() -> None:
    standings, models, told = run({"a": 1000.0, "b": 500.0, "c": -5000.0}, inference="sparse")
    assert [s.name for s in leaders(standings)[0]] == ["a"]
    assert told[0] == [("a", ""), ("b", ""), ("c", "")]
    assert told[1:] == [[("b", "16 inducing points and 600 steps")], [("c", "16 inducing points and 600 steps")]]
    second = models["b"][1]
    assert (second.job.settings["num_inducing"], second.job.settings["max_steps"], second.job.seed) == (16, 600, 1)
    assert standings[1].low <= 500 <= standings[1].high


def test_a_tie_ends_with_the_budget_and_says_what_it_would_take() -> None:
    standings, models, _ = run({"a": 1000.0, "b": 995.0}, seconds=3.5, inference="sparse")
    assert len(leaders(standings)[0]) == 2
    assert len(models["b"]) == 2
    assert "16 inducing points and 600 steps for a" in " ".join(verdict(standings))
    assert all(len(row) == 1 for row in run({"a": 1000.0, "b": 995.0}, seconds=0.0)[1].values())


def test_refining_takes_three_times_as_long_as_the_first_models_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a second here."""
    monkeypatch.setattr(refine, "LEAST_SECONDS", 0.0)
    tie = {"a": 1000.0, "b": 999.0}
    by_default, six, five = (run(tie, seconds, inference="sparse")[2] for seconds in (None, 6.0, 5.0))
    assert by_default == six != five
    monkeypatch.setattr(refine, "LEAST_SECONDS", 5.0)
    assert run({"a": 1000.0, "b": 999.0}, inference="sparse")[2] == six


def test_exact_inference_is_taken_where_it_is_quick_and_allowed() -> None:
    standings, _, told = run({"a": 1000.0, "b": 980.0})
    assert told[1:] == [[("b", "exact inference")], [("a", "exact inference")]]
    assert [s.name for s in leaders(standings)[0]] == ["a"]
    assert [s.value for s in standings] == [1000.0, 980.0]
    sparse = trained(job("a"), bound(10.0, 8))
    assert standing([sparse], ROWS).needs == "exact inference"
    assert standing([sparse], 10**6).needs == "16 inducing points and 600 steps"
    exact = refinement(sparse, ROWS)
    assert exact is not None
    assert (exact.job.settings["num_inducing"], exact.job.settings.get("inference")) == (None, None)  # the plan decides
    still_sparse = replace(sparse, job=exact.job)  # as where the data stay on disk
    assert standing([sparse, still_sparse], ROWS).needs == "16 inducing points and 600 steps"


def test_exact_models_that_have_converged_are_known_as_well_as_they_can_be() -> None:
    some = trained(job("a"), Fake(10.0, draws=64, error=2.0))
    assert standing([some], ROWS).width == pytest.approx(8.0)
    assert standing([some], ROWS).reason == "64 draws stand for the orbit"
    assert standing([trained(job("a"), Fake(10.0))], ROWS).reason == ""
    assert refinement(some, ROWS) is None
    assert refinement(trained(job("a"), Fake(10.0)), ROWS) is None


@pytest.mark.parametrize(("points", "purpose"), [(20, "40 inducing points"), (40, "50 inducing points"), (50, "")])
def test_inducing_points_are_doubled_up_to_one_for_each_datum(points: int, purpose: str) -> None:
    found = refinement(trained(job("a", inference="sparse"), Fake(10.0, 20.0, points)), ROWS)
    assert found is not None
    assert found.job.purpose == f"{purpose} and 600 steps".removeprefix(" and ")


def test_a_run_that_cannot_grow_is_repeated_once_and_then_the_verdict_promises_nothing() -> None:
    full = {"num_inducing": ROWS, "inference": "sparse", "orbit": Identity()}
    standings, models, told = run({"a": 1000.0, "b": 995.0}, seconds=1000.0, **full)
    assert told[1:] == [[("b", "600 steps")], [("a", "600 steps")]]
    assert [row[1].job.seed for row in models.values()] == [1, 1]
    assert all(s.high < inf and not s.needs for s in standings)
    said = " ".join(verdict(standings))
    assert said.startswith("Cannot tell a and b apart.")
    assert "more inducing points or steps are of no use to it" in said
    assert "would take" not in said


def test_a_run_that_cannot_grow_gets_more_steps_until_it_has_converged() -> None:
    model = bound(10.0, ROWS)
    model.converged_ = False
    limits = {"max_steps": 40, "max_seconds": 5.06567837}
    again = trained(replace(job("a", Identity(), inference="sparse", **limits), purpose="40 steps"), model)
    longer = refinement(again, ROWS)
    assert longer is not None
    assert longer.job.purpose == "80 steps and twice the time"
    assert (longer.job.settings["max_steps"], longer.job.settings["max_seconds"]) == (80, 10.13135674)
    model.converged_ = True
    assert refinement(again, ROWS) is None


@pytest.mark.parametrize("best", [Fake(100.0), Fake(100.0, 101.0)], ids=["exact", "sparse"])
def test_a_verdict_says_first_what_has_not_converged(best: Fake) -> None:
    best.converged_ = False
    first, plain = standing([trained(job("a"), best)], ROWS), standing([trained(job("none"), Fake(10.0))], ROWS)
    said = verdict([first, plain], "none")
    assert said[0] == "a has not converged, but it is ahead for certain: +90 (at least +90) nats over no invariance."
    rival = Fake(95.0)
    rival.converged_ = False  # which may rise above the best
    said = verdict([first, plain, standing([trained(job("b"), rival)], ROWS)], "none")
    assert said[0] == "a has not converged, so this is no verdict yet: let it train for longer."
    assert said[1] == "So far it is ahead: +90 (at least +90) nats over no invariance."


def test_a_run_that_met_a_limit_may_rise_to_anything() -> None:
    model = Fake(10.0)
    model.converged_ = False
    assert standing([trained(job("a", max_steps=5), model)], ROWS).high == inf
    longer = refinement(trained(job("a", max_steps=5), model), ROWS)
    assert longer is not None
    assert (longer.job.settings["max_steps"], longer.job.purpose) == (10, "10 steps")
    assert refinement(trained(job("a"), model), ROWS) is None  # no limit of the user's


def test_two_bounds_that_agree_say_nothing_where_training_met_a_limit() -> None:
    """Forty steps and eighty ended at -20.5 with a slack of 2.5, where more steps lead to 13.3."""
    two = [trained(job("swap", inference="sparse", max_steps=40), Fake(-20.5, -18.0)) for _ in range(2)]
    assert standing(two, ROWS).high < -10
    two[1].model.converged_ = False
    assert standing(two, ROWS).high == inf


def test_two_errors_of_the_draws_widen_both_ends_of_a_bound() -> None:
    runs = [[trained(job("a"), Fake(-20.5, -18.0, error=error))] * 2 for error in (0.0, 1.5)]
    known, measured = (standing(two, ROWS) for two in runs)
    assert known.low == -20.5
    assert known.high >= -18.0
    assert (measured.low, measured.high) == pytest.approx((known.low - 3.0, known.high + 3.0))
    assert standing([trained(job("a"), Fake(-20.5, -20.5))] * 2, ROWS).high == -20.5  # a bound without slack


@pytest.mark.slow
def test_parameters_learned_from_all_rows_are_within_the_interval_of_those_learned_from_some() -> None:
    """They lack 1.5 nats on average, for three parameters and half of the rows; these lack 2.5."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 3))
    gram = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1)) + 0.04 * np.eye(600)
    y = np.linalg.cholesky(gram) @ rng.normal(size=600)
    settings = {"inference": "exact", "random_state": 0}
    hurried = InvariantGPRegressor(**settings, training=TrainingOptions(exact_seconds=0.3)).fit(x, y)
    complete = float(InvariantGPRegressor(**settings).fit(x, y).evidence_)
    assert hurried.evidence_.learned_from == 300
    found = standing([Trained(Job("none", Identity(), 0, InvariantGPRegressor), 1.0, hurried)], 600)
    assert found.value + 2.0 < complete < found.high
    assert found.high - found.value == pytest.approx(0.5 * 11.345, abs=1e-3)  # chi squared, three parameters, 99 %


def test_a_bound_that_gains_much_for_little_slack_is_not_trusted() -> None:
    """200 digits and nine shifts: bounds of 273 and 386 with slacks of 160 and 144, where the exact evidence is 998."""
    two = [trained(job("shifts"), Fake(*ends)) for ends in ((272.7, 433.1), (386.2, 529.9))]
    assert standing(two, ROWS).high > 998
    # Where the slack does not fall at all, nothing is known.
    assert standing([two[0], trained(job("shifts"), Fake(386.2, 560.0))], ROWS).high == inf


def test_a_nat_of_slack_costs_what_the_second_run_gained_for_it() -> None:
    """By hand: 12 nats for a slack of 6 in place of 10 are 3 for each nat, so 12 + 6 * 3 + 12."""
    two = [trained(job("a"), Fake(*ends)) for ends in ((0.0, 10.0), (12.0, 18.0))]
    assert standing(two, ROWS).high == pytest.approx(42.0)


def test_refining_takes_at_least_twenty_seconds_by_default() -> None:
    """As the docstring of ``compare`` says. Six models of a second each, and no end of further ones."""
    tie = dict.fromkeys("abcdef", 1000.0)
    by_default, twenty, thirty = (
        run(tie, seconds, inference="sparse", num_inducing=2)[2] for seconds in (None, 20.0, 30.0)
    )
    assert by_default == twenty != thirty


def test_what_is_refined_next() -> None:
    best, loose = Standing("a", 100.0, 99.0, 120.0), Standing("b", 80.0, 80.0, 170.0)
    tight, beaten = Standing("c", 90.0, 89.0, 101.0), Standing("d", 1.0, 1.0, 1.0)
    assert undecided([best, loose, tight, beaten]) == ["b", "a", "c"]
    assert undecided([best, beaten]) == []
    assert (
        undecided([Standing("a", 10.0, 10.0, 10.0), Standing("b", 9.0, 9.0, 9.0)]) == []
    )  # nothing would make a difference of it
    assert undecided([best, replace(loose, high=inf)]) == ["b"]  # the best waits for an end


def test_a_second_run_that_gains_nothing_leaves_twice_the_slack() -> None:
    """By hand: a bound of -20 with a slack of 3 in both runs."""
    two = [trained(job("a"), Fake(-20.0, -17.0))] * 2
    assert standing(two, ROWS).high == pytest.approx(-14.0)


def test_all_orbits_but_one_count_as_tries() -> None:
    standings, *_ = run({"a": 100.0, "b": 50.0, "c": 10.0}, seconds=0.0)
    assert {standing.tried for standing in standings} == {2}
    standings, *_ = run({"a": 100.0, "b": 50.0}, seconds=0.0)
    assert {standing.tried for standing in standings} == {1}
