"""A limit of time covers learning from some rows and conditioning on all."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise, Identity
from orbitgp.planning import time_limit
from orbitgp.planning.cost import Workload, workload
from orbitgp.planning.rungs import rungs
from orbitgp.planning.time_limit import TimeLeft, TimeLimit
from orbitgp.training import run as run_module
from orbitgp.training.ladder import Ladder
from orbitgp.training.objective import Objective

CPU = torch.device("cpu")


def test_without_more_rows_all_of_it_is_for_learning() -> None:
    assert TimeLimit(None).to_learn(16) == math.inf
    assert TimeLimit(7.0).to_learn(None) == 7.0


def test_what_follows_is_left() -> None:
    """By hand: 10,000 rows with S draws and one noise take 100 (1e4 S)^2 / 40e9 + (1e12 / 2) / 16e9 s to condition on.

    Before that, an evaluation of 1,000 rows may take 4 * 100 * (1e3 S)^2 / 40e9 + 4 * 1e9 / 16e9 s, and their evidence
    is measured with fresh draws, in seven times 100 (1e3 S)^2 / 40e9 + (1e9 / 2) / 16e9 s.
    """
    limit = TimeLimit(180.0, 1000, 10_000, Workload(32, 92, CPU, one_noise=True))
    eight, sixteen = 16 + 31.25 + 0.89 + 7 * 0.19125, 64 + 31.25 + 2.81 + 7 * 0.67125
    assert limit.to_learn(8) == pytest.approx(180 - eight)
    assert limit.to_learn(16) == pytest.approx(180 - sixteen)
    assert limit.to_learn(64) == pytest.approx(72.0)  # it takes more than its share

    limit.record_evaluation(0.445, 1000, 8)  # this machine is twice as quick
    assert limit.to_learn(8) == pytest.approx(180 - eight / 2)
    limit.record_evaluation(99.0, 200, 8)  # of few rows, which tell nothing
    assert limit.to_learn(8) == pytest.approx(180 - eight / 2)
    loaded = TimeLimit(180.0, 1000, 10_000, limit.work)
    loaded.record_evaluation(99.0, 200, 8, load=2.0)  # others have half of the machine
    assert loaded.to_learn(8) == pytest.approx(180 - 2 * eight)


def test_the_posterior_has_as_many_draws_as_fit_a_quarter_of_the_time() -> None:
    """What follows takes 48.59 s with 8 draws, 99.95 s with 16 and 305 s with 32, of the 400 s."""
    limit = TimeLimit(400.0, 1000, 10_000, Workload(64, 92, CPU, one_noise=True))
    assert limit.posterior_draws(8) == 16
    assert limit.posterior_draws(32) == 16  # 305 s are more than three fifths of the time
    assert limit.posterior_draws(None) is None
    last = 4 * 100 * 8000**2 / 40e9 + 0.25
    assert limit.to_learn(8) == pytest.approx(400 - last - 99.95, abs=0.01)
    limit.record_evaluation(0.445 / 2, 1000, 8)  # this machine is four times as quick
    assert limit.posterior_draws(8) == 32
    limit.record_evaluation(1e-6, 1000, 8)
    assert limit.posterior_draws(8) == 64  # no more than the model may have
    assert TimeLimit(None, 1000, 10_000, limit.work).posterior_draws(8) == 8


def test_what_else_may_follow() -> None:
    """By hand: an evaluation of 400 rows with 16 draws takes 4 * 100 * 6400^2 / 40e9 + 4 * 400^3 / 16e9 = 0.4256 s."""
    limit = TimeLimit(10.0, 1000, 10_000, Workload(32, 92, CPU, one_noise=True))
    assert limit.allows(10, 400, 16, spent=5.74)
    assert not limit.allows(10, 400, 16, spent=5.75)
    limit.record_evaluation(0.445, 1000, 8)  # this machine is twice as quick
    assert limit.allows(20, 400, 16, spent=5.74)
    assert TimeLimit(None, 1000, 10_000, limit.work).allows(10**9, 400, 16, spent=1e9)


def test_fresh_draws_are_measured_on_the_rows_that_there_is_time_for() -> None:
    """By hand: the posterior of 10,000 rows with 8 draws takes 47.25 s, and measures of 1,000 rows 7 or 16 times
    0.19125 s.

    Those of 750 rows take 7 times 0.10318 s.
    """
    limit = TimeLimit(100.0, 1000, 10_000, Workload(8, 92, CPU, one_noise=True))
    assert limit.checked_rows(1000, 8, 3, spent=100 - 48.6) == 1000
    assert limit.checked_rows(1000, 8, 3, spent=100 - 48.5) == 750
    assert limit.checked_rows(1000, 8, 5, spent=100 - 48.6) < 750
    assert limit.checked_rows(1000, 8, 3, spent=200) <= 50
    assert TimeLimit(None, 1000, 10_000, limit.work).checked_rows(5000, 8, 3, spent=1e9) == 1000


def test_an_orbit_without_draws_is_not_measured_with_others() -> None:
    limit = TimeLimit(200.0, 1000, 10_000, Workload(8, 92, CPU, one_noise=True))
    assert limit.to_learn(None) == pytest.approx(limit.to_learn(8) + 7 * 0.19125)


def test_the_rest_is_halved_and_what_is_done_tells_how_long_more_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time_limit, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    rest = TimeLeft(60.0, spent=20.0)
    assert rest.share() == 10.0  # a sixth
    rest.spent = 48.0
    assert rest.share() == 6.0  # half of what is left
    with rest.timed(2.0):
        now[0] += 4.0
    assert (rest.spent, rest.pace) == (52.0, 2.0)
    assert rest.share() == 2.0  # which takes 4 s here
    with rest.timed(1.0):
        now[0] += 10.0
    assert rest.share() == 0.0
    free = TimeLeft(None)
    with free.timed(1.0):
        now[0] += 10.0
    assert free.share() == 150.0


class Evaluations:
    """A clock that counts evaluations, one a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        plain = Objective.__call__

        def counted(objective: Objective, vector: np.ndarray) -> tuple[float, np.ndarray]:
            self.now += 1.0
            return plain(objective, vector)

        monkeypatch.setattr(Objective, "__call__", counted)
        monkeypatch.setattr(
            run_module, "time", SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        )


@pytest.mark.parametrize("learn_rows", [100, 400])
def test_a_run_leaves_time_to_condition(learn_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation takes a second. Conditioning on 400 rows takes as many operations as several of 100."""
    Evaluations(monkeypatch)
    monkeypatch.setattr(Ladder, "_tolerance", lambda *_: -1.0)  # never at an optimum
    x = torch.linspace(0, 10, 400)[:, None]
    y = torch.sin(x).double()
    model = ExactGP(ScaleKernel(RBFKernel()).double(), Identity(), x)
    limit = TimeLimit(20.0, learn_rows, len(x), workload(model, Gaussian(1), None))
    steps = rungs(learn_rows, None, several=False)
    run = Ladder(model=model, likelihood=Gaussian(1), x=x, y=y, rungs=steps, several=False, limit=limit)
    run.run()
    assert not run.converged
    work = workload(model, Gaussian(1), None)
    after = 1 + work.conditioning(400).seconds / work.evaluation(learn_rows).seconds
    assert 1.1 < after < 1.5 if learn_rows == 400 else 3.0 < after < 12.0
    assert 19 < run.seconds + after < 21


class Drawn(GaussianNoise):
    """Noise as any infinite orbit: k_f has no closed form."""


def noisy_inputs(
    max_seconds: float | None,
    draws: int = 64,
    fixed: bool = False,
    rows: int = 30,
    **further: object,
) -> Ladder:
    """A run with several starts."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, 1, generator=generator)
    y = torch.sin(6 * x).double() + 0.1 * torch.randn(rows, 1, generator=generator, dtype=torch.float64)
    model = ExactGP(ScaleKernel(RBFKernel()).double(), Drawn(0.2), x)
    limit = TimeLimit(max_seconds, len(x), len(x), workload(model, Gaussian(1), draws))
    steps = rungs(len(x), draws, several=True, fixed_draws=fixed)
    run = Ladder(model=model, likelihood=Gaussian(1), x=x, y=y, rungs=steps, limit=limit)
    vars(run).update(further)
    return run


def test_a_search_takes_half_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """All starts take eighty evaluations. With a limit of 60 some are left out, and the run gets to all rows and
    draws."""
    Evaluations(monkeypatch)
    free, limited = noisy_inputs(None, rows=60), noisy_inputs(60.0, rows=60)
    for run, draws in ((free, 32), (limited, 64)):
        run.run()
        assert run.model.num_samples == draws
        assert run.history[-1]["rows"] == 60
    assert free.converged
    assert not limited.converged  # a start that was left out might have led higher
    assert "Raise the limit" in limited.summary()
    assert limited.steps < 60 < free.steps
    assert limited.history[-1]["bound"] == pytest.approx(free.history[-1]["bound"], abs=0.1)
    monkeypatch.setattr(run_module, "_SEARCH_SHARE", 1.0)
    searching = noisy_inputs(60.0, rows=60)
    searching.run()
    assert {record["num_samples"] for record in searching.history[:-1] if not record["without_orbit"]} == {16}


def test_a_late_run_that_continues_ends_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Evaluations(monkeypatch)
    states = []
    whole = noisy_inputs(60.0, after_step=lambda run: states.append(run.state_dict()))
    whole.run()
    assert not whole.converged
    for state in states[1 :: len(states) // 2]:
        clock.now = 0.0
        again = noisy_inputs(60.0)
        again.load_state_dict(state)
        again.run()
        assert again.steps == whole.steps
        assert np.array_equal(again.learned.get(), whole.learned.get())


def test_where_time_ends_the_posterior_has_more_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the user stops has not, and draws that the user fixed are kept."""
    Evaluations(monkeypatch)
    late, fixed = noisy_inputs(44.0), noisy_inputs(50.0, draws=16, fixed=True)
    stopped: Ladder = noisy_inputs(30.0, callback=lambda record: stopped.stop() if record["step"] >= 10 else None)
    for run, more in ((late, True), (fixed, False), (stopped, False)):
        end = run.run()
        assert not run.converged
        samples = run.limit.posterior_draws(16) if more else 16
        assert (samples > 16) == more
        assert run.model.num_samples == run.history[-1]["num_samples"] == samples
        assert end.log_evidence == run.model.log_evidence(run.likelihood, run.y)
    assert {record["num_samples"] for record in late.history[:-1] if not record["without_orbit"]} == {16}


class TimeForFewDraws(TimeLimit):
    """There is time to learn with 16 draws, and none to condition with more."""

    def to_learn(self, samples: int | None) -> float:
        return 0.0 if samples == 32 else math.inf


def test_draws_are_doubled_only_where_there_is_time_to_condition_with_twice_as_many() -> None:
    states: list[dict[str, Any]] = []
    whole = noisy_inputs(None, after_step=lambda run: states.append(run.state_dict()))
    whole.limit = TimeForFewDraws(None)
    end = whole.run()
    assert whole.model.num_samples == 16
    assert not whole.converged
    assert "met its limit" in whole.summary()
    # Without a gradient, sums are in another order: single precision.
    assert any(end.log_evidence == pytest.approx(optimum.value, abs=1e-3) for optimum in whole.optima)
    for state in states[1 :: len(states) // 2]:
        again = noisy_inputs(None)
        again.limit = TimeForFewDraws(None)
        again.load_state_dict(state)
        assert again.run().log_evidence == end.log_evidence


def test_evaluations_without_the_orbit_do_not_tell_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no draws, and take next to no time."""
    told: list[int | None] = []
    monkeypatch.setattr(TimeLimit, "record_evaluation", lambda self, seconds, rows, samples, load: told.append(samples))
    run = noisy_inputs(None)
    run.run()
    assert any(record["without_orbit"] for record in run.history)
    assert set(told) == {16, 32}
    assert len(told) < run.steps
