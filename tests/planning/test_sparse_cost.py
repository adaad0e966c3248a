"""The default limit of a sparse run follows from what its steps cost at the nominal speed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import orbitgp.estimators.base
from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, Likelihood
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Permutation, Rotate90, Rotation
from orbitgp.planning.cost import Workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import many_inducing
from orbitgp.planning.sparse_cost import (
    LEAST_STEPS,
    MOST_STEPS,
    SECONDS,
    affordable_steps,
    default_steps,
    evaluation_cost,
    most_inducing,
    pass_seconds,
    passes_within,
    rest_of,
    seconds_on,
    step_seconds,
)
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training.trainer import Trainer
from tests.likelihoods.own import Difference


def steps(rows: int, points: int, orbit: Orbit | None = None, likelihood: Likelihood | None = None) -> tuple[int, float]:
    """The default limit, and seconds a step."""
    x = torch.zeros(rows, 3, dtype=torch.float64)
    model = InvariantGP(ScaleKernel(RBFKernel()).double(), orbit or Identity(), torch.randn(points, 3).double())
    problem = model, likelihood or Gaussian(), x, TrainerSettings(num_samples=8)
    return default_steps(*problem), step_seconds(*problem)


def test_the_limit_is_ten_minutes_of_steps_within_bounds() -> None:
    assert steps(100, 5)[0] == MOST_STEPS
    assert steps(200_000, 2000)[0] == LEAST_STEPS
    limit, seconds = steps(20_000, 256)
    assert LEAST_STEPS < limit < MOST_STEPS
    assert limit == int(SECONDS / seconds)


def test_samples_and_local_parameters_cost_more() -> None:
    plain = steps(5000, 64)[1]
    assert steps(5000, 64, GaussianNoise(0.1).double())[1] > plain
    assert steps(5000, 64, likelihood=Bernoulli())[1] > plain


class TestWhatFollowsARun:
    model = InvariantGP(ScaleKernel(RBFKernel()).double(), GaussianNoise(0.1).double(), torch.randn(64, 3).double())
    problem = model, Gaussian(), torch.zeros(5000, 3, dtype=torch.float64)
    one = pass_seconds(*problem, 5000, 64)

    def passes(self, rest: TimeLeft, rows: int = 5000, least: float = 2.0, beside: int = 0) -> float:
        return passes_within(*self.problem, rows, 64, rest, least, most=8.0, beside=beside)

    def test_takes_a_sixth_of_the_limit(self) -> None:
        assert self.passes(TimeLeft(None)) == self.passes(TimeLeft(1e6 * self.one)) == 8.0
        assert self.passes(TimeLeft(30 * self.one)) == pytest.approx(5.0)
        assert self.passes(TimeLeft(30 * self.one), beside=2) == pytest.approx(3.0)
        assert self.passes(TimeLeft(15 * self.one), rows=2500) == pytest.approx(5.0, rel=0.1)
        assert self.passes(TimeLeft(0.1 * self.one)) == 2.0

    def test_takes_half_of_what_is_left(self) -> None:
        assert self.passes(TimeLeft(30 * self.one, spent=22 * self.one)) == pytest.approx(4.0)
        assert self.passes(TimeLeft(30 * self.one, spent=31 * self.one), least=0.0) == 0.0

    def test_takes_fewer_passes_on_a_slower_machine(self) -> None:
        assert self.passes(TimeLeft(30 * self.one, pace=2.0), least=0.0) == pytest.approx(2.5)

    def test_a_pass_takes_at_least_a_third_of_an_evaluation(self) -> None:
        """By hand: a value of the kernel takes 2 * 3 * (3 + 8) operations; 64 samples meet 64 points, and each other."""
        algebra = (6 + 8) * (5000 + 64) * 64**2 / 3 + 4 * 11 * 64**2 / 3
        kernel = 2 * 3 * 11 * 5000 * 64 * (64 + 3 * 64)
        assert self.one == pytest.approx((algebra + kernel) / 16e9)
        assert self.one > evaluation_cost(*self.problem, 64, 5000).seconds / 3

    def test_at_the_nominal_speed_without_a_limit(self) -> None:
        """150 seconds, whatever was spent, on every machine, for a kernel between samples and inducing points alone."""
        found = [
            passes_within(*self.problem, 10**9, 64, rest, 0.0, 8.0, 3) for rest in (TimeLeft(None), TimeLeft(None, 1e9, 7.0))
        ]
        seconds = evaluation_cost(*self.problem, 64, 10**9).seconds / 3
        assert found == [pytest.approx(150 / seconds)] * 2

    def test_learning_has_two_thirds(self) -> None:
        assert rest_of(TrainerSettings(max_seconds=8.0)) == TimeLeft(12.0)
        assert rest_of(TrainerSettings()) == TimeLeft(None)


@pytest.mark.parametrize(("given", "learning"), [(None, None), (12.0, 8.0)])
def test_two_thirds_of_the_time_for_a_fit_are_for_learning(
    given: float | None, learning: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows may take twice a quarter of that."""
    seen = []
    monkeypatch.setattr(Trainer, "run", lambda trainer: seen.append(trainer.options.max_seconds))
    x = np.random.default_rng(0).normal(size=(30, 2))
    InvariantGPRegressor(num_inducing=5, max_seconds=given, random_state=0).fit(x, x[:, 0])
    assert seen == [learning]


@pytest.mark.parametrize(("max_seconds", "expected"), [(None, 64), (1e-3, 8)])
def test_a_bound_that_takes_too_long_is_measured_with_fewer_draws(max_seconds: float | None, expected: int) -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    settings = {"max_seconds": max_seconds, "max_steps": 3, "num_inducing": 5, "random_state": 0}
    assert InvariantGPRegressor(GaussianNoise(0.1), **settings).fit(x, x[:, 0]).evidence_.num_samples == expected


@pytest.mark.parametrize(
    ("given", "batch_size", "expected"), [(None, 20, MOST_STEPS), (120, 20, 120), (None, None, TrainerSettings.max_steps)]
)
def test_an_estimator_takes_it_for_stochastic_steps_without_a_limit(
    given: int | None, batch_size: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def run(trainer: Trainer) -> None:
        seen.append(trainer.options.max_steps)
        raise InterruptedError

    monkeypatch.setattr(Trainer, "run", run)
    x = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(InterruptedError):
        InvariantGPClassifier(num_inducing=5, max_steps=given, batch_size=batch_size).fit(x, x[:, 0] > 0)
    assert seen == [expected]


class TestStepsThatACPUCanMake:
    @staticmethod
    def problem(rows: int = 100_000, pixels: int = 784) -> tuple[InvariantGP, Likelihood, torch.Tensor]:
        points = torch.randn(256, pixels)
        model = InvariantGP(ScaleKernel(RBFKernel()).double(), GaussianNoise(0.1), points, inducing_samples=8)
        return model, Gaussian(), torch.zeros(1).expand(rows, pixels)

    def test_three_hundred_of_them_take_ten_minutes_or_what_there_is(self) -> None:
        problem = self.problem(pixels=196)
        for limit in (None, 400.0):
            options = TrainerSettings(max_seconds=limit)
            found = affordable_steps(*problem, options)
            each = (limit or SECONDS) / LEAST_STEPS
            assert step_seconds(*problem, options) > 7 * each
            assert 0.9 * each < step_seconds(*problem, found) <= each
            assert found.posterior_samples == 8
            assert 1024 <= found.posterior_rows < 20_000
            assert 128 <= found.batch_size < 512
            assert found.set_params(posterior_samples=None, posterior_rows=20_000, batch_size=512) == options
        assert default_steps(*problem, affordable_steps(*problem, TrainerSettings())) == LEAST_STEPS

    def test_they_do_not_become_too_small(self) -> None:
        found = affordable_steps(*self.problem(), TrainerSettings(max_seconds=1.0))
        assert (found.posterior_rows, found.batch_size) == (4 * 256, 128)
        found = affordable_steps(*self.problem(rows=50), TrainerSettings(max_seconds=1e-3))
        assert (found.posterior_rows, found.batch_size) == (50, 50)

    def test_those_that_are_quick_stay_as_they_are(self) -> None:
        options = TrainerSettings()
        assert affordable_steps(*self.problem(rows=400, pixels=3), options) is options

    def test_what_was_set_stays_as_it_is(self) -> None:
        options = TrainerSettings(posterior_samples=16, posterior_rows=15_000)
        found = affordable_steps(*self.problem(), options)
        assert found == options.set_params(batch_size=found.batch_size)
        assert found.batch_size < 512
        options = TrainerSettings(batch_size=400)
        assert affordable_steps(*self.problem(), options).batch_size == 400

    @pytest.mark.parametrize(("samples", "expected"), [(32, 8), (6, 6)])
    def test_draws_are_those_of_whole_groups(self, samples: int, expected: int) -> None:
        problem = self.problem()
        found = affordable_steps(*problem, TrainerSettings(num_samples=samples))
        assert found.posterior_samples == expected
        problem[0].orbit.sample(torch.zeros(2, 784), expected, 2, found.sampler, torch.Generator())

    def test_a_run_takes_them(self) -> None:
        model, likelihood, x = self.problem()
        options = TrainerSettings(learning_rate=0.02)  # which only stochastic steps have
        run = Trainer(model, likelihood, x, torch.zeros(len(x), 1, dtype=torch.float64), options, free_steps=True)
        assert run.stochastic.options == run.options == affordable_steps(model, likelihood, x, options)
        assert run.stochastic.posterior.size == run.options.posterior_rows


class TestInducingPointsOnAGPU:
    """At the nominal speed of a GPU, where there is none to ask. 60,000 images, averages over eight, ten covariances."""

    work = Workload(samples=32, dim=784, device=torch.device("cuda"))

    def points(self, seconds: float, rows: int = 60_000, memory: float = 1e12, early: int = 16) -> int | None:
        return most_inducing(self.work, early, rows, 8, 10, seconds, memory)

    @pytest.fixture(autouse=True)
    def nominal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def test_as_many_as_there_is_time_for(self) -> None:
        found = [self.points(seconds) or 0 for seconds in np.geomspace(1.0, 1000.0, 30)]
        assert found == sorted(found)
        assert set(found) == {0, 512, 1024}
        assert self.points(TrainerSettings.exact_seconds) == 1024
        each = self.work.collapsed(60_000, 1024, 8, 10).seconds
        assert self.points(20 * each / 2.2) is not None  # most evaluations have half of the draws
        assert self.points(20 * each / 2.2, early=32) != 1024

    def test_not_without_memory_for_the_most_draws_or_with_few_rows(self) -> None:
        needed = self.work.collapsed(60_000, 512, 8, 10).bytes / 0.7
        assert self.points(1000.0, memory=1.01 * needed) == 512
        assert self.points(1000.0, memory=0.99 * needed) is None
        assert [self.points(1000.0, rows) for rows in (2047, 2048, 4095, 4096)] == [None, 512, 512, 1024]

    def test_the_time_is_that_of_an_exact_fit_or_the_limit(self) -> None:
        found = [seconds_on(self.work.device, TrainerSettings(max_seconds=limit)) for limit in (None, 1000.0, 20.0)]
        assert found == [150.0, 150.0, 20.0]

    def test_the_default_where_every_step_may_see_all_data(self) -> None:
        """A meta device is no CPU, and is reckoned as slow as one."""
        x = torch.zeros(6000, 28, 28, device="meta")

        def asked(orbit: Orbit, likelihood: Likelihood | None = None, **options: Any) -> int | None:
            model = ExactGP(ScaleKernel(RBFKernel()), orbit, torch.zeros(2, 28, 28), 10)
            model.x = x
            return many_inducing(model, likelihood or Dirichlet(10), TrainerSettings(**{"exact_seconds": 1e7, **options}))

        assert asked(Rotation()) == 1024
        assert asked(Rotation(), exact_seconds=150.0) is None
        assert asked(Rotation(), max_seconds=60.0) is None
        assert asked(Rotation(), learning_rate=0.1) is None
        assert asked(Rotation(), Difference()) is None
        # Of a finite orbit all elements are seen from the first evaluation on: more of them cost more.
        seconds = {orbit: next(s for s in np.geomspace(1e0, 1e7, 200) if asked(orbit, exact_seconds=s) == 1024)
                   for orbit in (Flip(), Rotate90())}  # fmt: skip
        two, four = seconds.values()
        assert four > 1.2 * two

    @pytest.mark.parametrize(("asked", "expected"), [(None, 24), (17, 17)])
    def test_the_estimator_takes_that_many_unless_it_is_told(
        self, asked: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(orbitgp.estimators.base, "many_inducing", lambda *given: 24)
        x = np.random.default_rng(0).normal(size=(40, 2))
        settings: dict[str, Any] = {"inference": "sparse", "num_inducing": asked, "max_steps": 2, "random_state": 0}
        model = InvariantGPRegressor(Permutation.swap(0, 1), **settings).fit(x, x.sum(1))
        assert len(model.model_.inducing) == expected
        assert model.num_inducing is asked
