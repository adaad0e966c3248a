"""How a sparse run learns follows from what its evaluations and steps cost at the nominal speed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import StoredRows
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, Likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation
from orbitgp.planning import sparse
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import inducing_size
from orbitgp.planning.rungs import Rung
from orbitgp.planning.sparse import (
    SECONDS,
    affordable_steps,
    climb,
    evaluation_cost,
    most_evaluations,
    pass_seconds,
    step_seconds,
)
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training.trainer import Trainer

Problem = tuple[InvariantGP, Likelihood, torch.Tensor]


def problem(rows: int, points: int = 8, orbit: Orbit | None = None, likelihood: Likelihood | None = None) -> Problem:
    likelihood = likelihood or Gaussian()
    orbit = orbit or GaussianNoise(0.1).double()
    model = InvariantGP(
        ScaleKernel(RBFKernel()).double(), orbit, torch.randn(points, 3).double(), likelihood.num_latents
    )
    return model, likelihood, torch.zeros(rows, 3, dtype=torch.float64)


class TestClimbs:
    def test_few_data_with_the_usual_options(self) -> None:
        for likelihood in (Gaussian(), Dirichlet(2, 0.01), Bernoulli()):
            assert climb(*problem(24, likelihood=likelihood), TrainerSettings()) == Rung(24, 128)
        assert climb(*problem(24, orbit=Permutation.swap(0, 1)), TrainerSettings()) == Rung(24, None)
        assert climb(*problem(24), TrainerSettings(climb_samples=7)) == Rung(24, 7)

    @pytest.mark.parametrize(
        "options",
        [{"batch_size": 23}, {"posterior_rows": 23}, {"learning_rate": 0.1}, {"sampler": "iid"}, {"local": "network"}],
    )
    def test_who_asks_for_stochastic_steps_gets_them(self, options: dict[str, Any]) -> None:
        assert climb(*problem(24), TrainerSettings(**options)) is None

    def test_parts_as_large_as_the_data_ask_for_nothing(self) -> None:
        assert climb(*problem(24), TrainerSettings(batch_size=24, posterior_rows=24)) == Rung(24, 128)
        assert climb(*problem(30_000, 4, Identity()), TrainerSettings()) == Rung(30_000, None)

    def test_not_data_on_disk(self) -> None:
        model, likelihood, x = problem(24)
        stored = StoredRows(lambda index: x[index].numpy(), tuple(x.shape), torch.float64, torch.device("cpu"))
        assert climb(model, likelihood, stored, TrainerSettings()) is None

    @pytest.mark.parametrize("option", ["max_seconds", "exact_seconds"])
    def test_the_less_time_the_fewer_draws_and_then_the_fewer_rows(self, option: str) -> None:
        """At each size, fifty evaluations with the last draws fit into the time, unless it is the least."""
        given, found = problem(3000), []
        for seconds in np.geomspace(1e-3, 100, 60):
            rung = climb(*given, TrainerSettings(**{option: float(seconds)}))
            assert rung is not None
            assert rung.draws is not None
            allowed = seconds if option == "max_seconds" else 4 * seconds
            cost = 50 * evaluation_cost(*given, rung.draws, rung.rows).seconds
            assert cost <= allowed or rung == Rung(4 * 8, 16)
            found.append(rung)
        assert found == sorted(found, key=lambda rung: (rung.rows, rung.draws))
        assert {rung.draws for rung in found} == {16, 32, 64, 128}
        assert len({rung.rows for rung in found}) > 5

    def test_not_more_than_fits_into_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = problem(3000)
        needed = {draws: evaluation_cost(*given, draws, 3000).bytes / 0.7 for draws in (16, 32, 128)}
        for gigabytes, expected in ((1.01 * needed[128], 128), (1.01 * needed[32], 32), (1.01 * needed[16], 16)):
            monkeypatch.setattr(sparse, "free_memory", lambda device, memory=gigabytes: memory)
            assert climb(*given, TrainerSettings()) == Rung(3000, expected)
        monkeypatch.setattr(sparse, "free_memory", lambda device: 0.5 * needed[16])
        fewer = climb(*given, TrainerSettings())
        assert fewer is not None
        assert 1000 < fewer.rows < 2000

    @pytest.mark.parametrize(("orbit", "options"), [(None, {"climb_samples": 16}), (Permutation.swap(0, 1), {})])
    def test_fixed_draws_and_whole_orbits_have_fewer_rows(self, orbit: Orbit | None, options: dict[str, Any]) -> None:
        rung = climb(*problem(3000, orbit=orbit), TrainerSettings(max_seconds=0.01, **options))
        assert rung is not None
        assert rung.draws == options.get("climb_samples")
        assert 4 * 8 <= rung.rows < 3000

    def test_evaluations_take_ten_minutes_within_bounds(self) -> None:
        assert most_evaluations(*problem(24), Rung(24, 128)) == 300
        given = problem(200_000, 200, Identity())
        each = evaluation_cost(*given, 1, 200_000).seconds
        assert 50 < most_evaluations(*given, Rung(200_000, None)) < 300
        assert most_evaluations(*given, Rung(200_000, None)) == int(600 / each)
        assert most_evaluations(*problem(200_000, 1000, Identity()), Rung(200_000, None)) == 50

    @pytest.mark.parametrize(("free", "limit", "expected"), [(True, None, 50), (True, 1e4, 300), (False, None, 300)])
    def test_a_run_makes_as_many_unless_the_user_sets_a_limit(
        self, free: bool, limit: float | None, expected: int
    ) -> None:
        model, likelihood, x = problem(20_000, 1000, Identity())
        settings = TrainerSettings(max_seconds=limit, exact_seconds=1e-3)
        run = Trainer(model, likelihood, x, torch.zeros(len(x), 1, dtype=torch.float64), settings, free_steps=free)
        run.last_rung = Rung(200_000, None)
        assert run._make_engine().max_steps == expected


def test_a_gpu_has_more_inducing_points_where_there_are_rows_for_them() -> None:
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    sizes = [inducing_size(None, 8, rows, GaussianNoise(), gpu) for rows in (300, 1024, 2000, 60_000)]
    assert sizes == [(256, 8), (256, 8), (500, 8), (1024, 8)]
    assert inducing_size(None, 8, 60_000, GaussianNoise(), cpu) == (256, 8)


class TestSteps:
    @staticmethod
    def images(rows: int = 100_000, pixels: int = 784) -> Problem:
        points = torch.randn(256, pixels)
        model = InvariantGP(ScaleKernel(RBFKernel()).double(), GaussianNoise(0.1), points, inducing_samples=8)
        return model, Gaussian(), torch.zeros(1).expand(rows, pixels)

    @pytest.mark.parametrize(
        ("rows", "points", "expected"), [(100, 5, 3000), (200_000, 2000, 300), (20_000, 256, None)]
    )
    def test_there_are_as_many_as_take_ten_minutes_within_bounds(
        self, rows: int, points: int, expected: int | None
    ) -> None:
        given = problem(rows, points, Identity())
        free = affordable_steps(*given, TrainerSettings(num_samples=8), free_steps=True)
        assert free.max_steps == (expected or int(600 / step_seconds(*given, free)))
        assert 300 <= free.max_steps <= 3000
        assert affordable_steps(*given, TrainerSettings(max_steps=7)).max_steps == 7

    def test_samples_and_local_parameters_cost_more(self) -> None:
        options = TrainerSettings(num_samples=8)
        plain = step_seconds(*problem(5000, 64, Identity()), options)
        assert step_seconds(*problem(5000, 64), options) > plain
        assert step_seconds(*problem(5000, 64, Identity(), Bernoulli()), options) > plain

    @pytest.mark.parametrize("limit", [None, 400.0])
    def test_three_hundred_of_them_take_ten_minutes_or_what_there_is(self, limit: float | None) -> None:
        given, options = self.images(pixels=196), TrainerSettings(max_seconds=limit)
        found, each = affordable_steps(*given, options), (limit or SECONDS) / 300
        assert step_seconds(*given, options) > 7 * each
        assert 0.4 * each < step_seconds(*given, found) <= each
        assert found.posterior_samples == 8
        assert 1024 <= found.posterior_rows < 20_000
        assert 128 <= found.batch_size < 512
        assert found.set_params(posterior_samples=None, posterior_rows=20_000, batch_size=512) == options

    def test_they_do_not_become_too_small(self) -> None:
        found = affordable_steps(*self.images(), TrainerSettings(max_seconds=1.0))
        assert (found.posterior_rows, found.batch_size) == (4 * 256, 128)
        found = affordable_steps(*self.images(rows=50), TrainerSettings(max_seconds=1e-3))
        assert (min(found.posterior_rows, 50), min(found.batch_size, 50)) == (50, 50)

    def test_those_that_are_quick_stay_as_they_are(self) -> None:
        options = TrainerSettings()
        assert affordable_steps(*self.images(rows=400, pixels=3), options) is options

    def test_what_was_set_stays_as_it_is(self) -> None:
        options = TrainerSettings(posterior_samples=16, posterior_rows=15_000)
        found = affordable_steps(*self.images(), options)
        assert found == options.set_params(batch_size=found.batch_size)
        assert found.batch_size < 512
        assert affordable_steps(*self.images(), TrainerSettings(batch_size=400)).batch_size == 400

    @pytest.mark.parametrize(("samples", "expected"), [(32, 8), (6, 6)])
    def test_draws_are_those_of_whole_groups(self, samples: int, expected: int) -> None:
        given = self.images()
        found = affordable_steps(*given, TrainerSettings(num_samples=samples))
        assert found.posterior_samples == expected
        given[0].orbit.sample(torch.zeros(2, 784), expected, 2, found.sampler, torch.Generator())

    def test_a_run_takes_them(self) -> None:
        model, likelihood, x = self.images()
        options = TrainerSettings(learning_rate=0.02)  # which only stochastic steps have
        run = Trainer(model, likelihood, x, torch.zeros(len(x), 1, dtype=torch.float64), options, free_steps=True)
        assert run.stochastic.options == run.options == affordable_steps(model, likelihood, x, options, free_steps=True)
        assert run.stochastic.posterior.size == run.options.posterior_rows


def test_a_pass_takes_a_third_of_an_evaluation() -> None:
    """By hand: a value of the kernel takes 6 * (3 + 8) operations, and there are 5,000 * 64 * 64 of them."""
    algebra = (6 + 8) * (5000 + 64) * 64**2 + 4 * 11 * 64**2
    kernel = 6 * 11 * 5000 * 64 * 64
    assert pass_seconds(*problem(5000, 64), 5000, 64) == pytest.approx((algebra + kernel) / 3 / 16e9)


@pytest.mark.parametrize(("given", "learning"), [(None, None), (12.0, 8.0)])
def test_two_thirds_of_the_time_for_a_fit_are_for_learning(
    given: float | None, learning: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(Trainer, "run", lambda trainer: seen.append((trainer.options.max_seconds, trainer.rest)))
    x = np.random.default_rng(0).normal(size=(30, 2))
    InvariantGPRegressor(num_inducing=5, max_seconds=given, random_state=0).fit(x, x[:, 0])
    assert seen[0][0] == learning
    assert seen[0][1].seconds == given


@pytest.mark.parametrize(("max_seconds", "expected"), [(None, 64), (1e-3, 8)])
def test_a_bound_that_takes_too_long_is_measured_with_fewer_draws(max_seconds: float | None, expected: int) -> None:
    x = np.random.default_rng(0).normal(size=(300, 2))
    settings = {"max_seconds": max_seconds, "max_steps": 3, "num_inducing": 5, "random_state": 0}
    assert InvariantGPRegressor(GaussianNoise(0.1), **settings).fit(x, x[:, 0]).evidence_.num_samples == expected


@pytest.mark.parametrize(("given", "batch_size", "expected"), [(None, 20, 3000), (120, 20, 120), (None, None, 300)])
def test_an_estimator_takes_ten_minutes_of_stochastic_steps_without_a_limit(
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


def test_without_a_limit_what_follows_takes_as_long_as_an_exact_fit_may() -> None:
    assert TimeLeft(None).share() == TimeLeft(None, spent=1e9, pace=7.0).share() == 150.0
