"""Stochastic steps: rates, budget, history, minibatches and the last q(u)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior

import orbitgp.training.posterior
import orbitgp.training.stochastic_steps
from orbitgp.inference.elbo import elbo
from orbitgp.inference.evidence import measure_evidence
from orbitgp.inference.natural_gradient import Statistics, statistics
from orbitgp.inference.rows import Minibatches, spread
from orbitgp.orbits import GaussianNoise, Identity
from orbitgp.planning.sparse import pass_seconds, step_seconds
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training.objective import log_prior
from orbitgp.training.stochastic_steps import StochasticSteps
from tests.training.sparse_run import make_trainer, toy_data

pytestmark = pytest.mark.usefixtures("double")


def test_rates_are_in_units_of_the_inputs() -> None:
    """Noise on inputs that are a thousand times as large is learned a thousand times as fast; angles are not."""
    rates = []
    for unit in (1.0, 1e3):
        x, y = toy_data()
        trainer = make_trainer(GaussianNoise(0.1 * unit), data=(unit * x, y), start_rows=0)
        scale, inducing = trainer.model.orbit.scale, trainer.model.inducing
        of = {id(p): group["lr"] for group in trainer.stochastic.optimizer.param_groups for p in group["params"]}
        rates.append([of[id(scale)], of[id(inducing)]])
    assert rates[1] == pytest.approx([1e3 * rate for rate in rates[0]])


def test_inducing_points_at_all_data_stay_there() -> None:
    x, y = toy_data()
    trainer = make_trainer(Identity(), data=(x, y), size=len(x), start_rows=0)
    assert not any(
        p is trainer.model.inducing for group in trainer.stochastic.optimizer.param_groups for p in group["params"]
    )


def test_the_jitter_follows_the_noise_down_and_not_below_what_failed() -> None:
    trainer = make_trainer(Identity(), start_rows=0)
    trainer.model.jitter = 1e-6
    with torch.no_grad():
        trainer.likelihood.log_noise.fill_(math.log(1e-5))
    trainer.stochastic.posterior.update(1.0)
    assert trainer.model.jitter == pytest.approx(1e-11, rel=0.2)
    trainer.model.jitter, trainer.stochastic.posterior.failed_jitter = 1e-6, 1e-9
    trainer.stochastic.posterior.update(1.0)
    assert trainer.model.jitter == 1e-6


# The budget, the history


class Clock:
    """Every look at it takes half a second, so that a step takes half a second too."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.5
        return self.now


def test_the_time_budget_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(orbitgp.training.stochastic_steps, "time", clock)
    trainer = make_trainer(max_steps=100_000, max_seconds=18.0, start_rows=0)
    history = trainer.run()
    assert 12.0 <= history[-1]["seconds"] < 13.0
    assert clock.now < 26.0  # two looks at the clock for each step
    assert trainer.steps > 10
    assert trainer.fraction() >= 1.0
    each = step_seconds(trainer.model, trainer.likelihood, trainer.x, trainer.options)
    assert trainer.stochastic.pace == pytest.approx(history[-1]["seconds"] / trainer.steps / each)
    group = trainer.stochastic.optimizer.param_groups[0]
    assert group["lr"] < 0.2 * group["first"]  # the schedule came to its end


def test_the_history_is_complete() -> None:
    seen: list[Any] = []
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    trainer = make_trainer(
        GaussianNoise(0.1), kernel=kernel, max_steps=32, hooks={"callback": seen.append}, start_rows=0
    )
    history = trainer.run()
    assert history is trainer.history
    assert seen == history
    assert [record["step"] for record in history] == list(range(1, 33))
    assert all(later["seconds"] > earlier["seconds"] for earlier, later in itertools.pairwise(history))
    for record in history:
        assert set(record) == {
            *("step", "seconds", "bound", "orbit", "outputscale", "lengthscale", "noise", "blend", "jitter")
        }
        assert all(math.isfinite(v) for name, v in record.items() if name != "orbit")
        assert record["orbit"].keys() == {"scale"}
    last = history[-1]
    assert last["orbit"]["scale"] == pytest.approx(trainer.model.orbit.scale.abs().item())
    assert last["outputscale"] == pytest.approx(kernel.outputscale.item())
    assert last["lengthscale"] == pytest.approx(kernel.base_kernel.lengthscale.median().item())
    assert last["noise"] == pytest.approx(trainer.likelihood.noise.item())


def test_a_long_run_has_about_a_hundred_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(run: Any) -> None:
        run.steps += 1
        run.bounds.append(torch.tensor(float(run.steps)))

    monkeypatch.setattr(StochasticSteps, "step", step)
    history = make_trainer(max_steps=955, start_rows=0).run()
    assert [record["step"] for record in history] == [*range(9, 955, 9), 955]
    assert history[1]["bound"] == 14.0  # the mean of 10 to 18


def test_records_hold_the_mean_bound_since_the_last_one() -> None:
    trainer = make_trainer(start_rows=0, max_steps=1000)
    for _ in range(5):
        trainer.stochastic.step()
    bounds = torch.stack(trainer.stochastic.bounds)
    assert trainer.stochastic.record()["bound"] == pytest.approx(bounds.mean().item())
    trainer.stochastic.step()
    (bound,) = trainer.stochastic.bounds
    assert trainer.stochastic.record()["bound"] == pytest.approx(bound.item())


def test_a_run_that_is_asked_to_stop_does() -> None:
    trainer = make_trainer(hooks={"after_step": lambda t: t.stop() if t.steps == 7 else None}, max_steps=1000)
    trainer.run()
    assert trainer.steps == 7


def test_rates_hold_and_fall_to_zero() -> None:
    trainer = make_trainer(start_rows=0, max_steps=20)
    groups, seen = trainer.stochastic.optimizer.param_groups, []
    trainer.after_step = lambda t: seen.append([group["lr"] / group["first"] for group in groups])
    trainer.run()
    for factors in zip(*seen, strict=True):
        assert list(factors[:11]) == pytest.approx([1.0] * 11)
        assert all(later < earlier for earlier, later in itertools.pairwise(factors[10:]))
        assert factors[-1] < 0.03


def test_q_steps_are_shorter_where_they_are_noisy() -> None:
    assert make_trainer().stochastic.posterior.rho() == 1.0
    assert make_trainer(posterior_rows=20).stochastic.posterior.rho() == 0.5
    assert make_trainer(likelihood="bernoulli").stochastic.posterior.rho() == 0.5  # local parameters of the same draws
    assert make_trainer().stochastic.posterior.rho(0.4) == 0.4  # as the rates fall, q(u) averages over more steps
    assert make_trainer().stochastic.posterior.rho(0.0) == 0.1


def test_parts_of_the_data_stand_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of an epoch average to that of all data; q(u) from half of some equal data is q(u) from all of
    them."""
    monkeypatch.setattr("orbitgp.training.stochastic_steps._INDUCING_RATE", 1e-12)
    trainer = make_trainer(Identity(), batch_size=10, learning_rate=1e-12, max_steps=100)
    monkeypatch.setattr(trainer.stochastic.posterior, "update", lambda rho: None)
    whole = elbo(trainer.model, trainer.likelihood, trainer.model.orbit.sample(trainer.x, None), trainer.y, 30).item()
    for _ in range(3):
        trainer.stochastic.step()
    assert torch.stack(trainer.stochastic.bounds).mean().item() == pytest.approx(whole)
    assert torch.stack(trainer.stochastic.bounds).std() > 0.1
    x, y = (t[:1].repeat(30, 1) for t in toy_data())
    parts = [make_trainer(Identity(), data=(x, y), posterior_rows=rows) for rows in (30, 15)]
    for trainer in parts:
        trainer.stochastic.posterior.update(1.0)
    torch.testing.assert_close(tuple(parts[0].stochastic.posterior.stats), tuple(parts[1].stochastic.posterior.stats))
    torch.testing.assert_close(parts[0].model.q_mean, parts[1].model.q_mean)


def test_minibatches_use_every_datum_once_before_any_again() -> None:
    minibatches = Minibatches(torch.zeros(30, 1), torch.Generator().manual_seed(0))
    rows = torch.cat([minibatches.take(7) for _ in range(30)])
    for epoch in rows.split(30):
        assert sorted(epoch.tolist()) == list(range(30))
    assert not torch.equal(rows[:30], rows[30:60])


def test_refits_from_parts_of_the_data_average_to_one_from_all() -> None:
    """Without noise of the orbit nothing but the choice of parts is left, and an epoch of them leaves nothing out."""
    whole, parts = (make_trainer(Identity(), posterior_rows=rows) for rows in (30, 10))
    whole.stochastic.posterior.update(1.0)
    for i in range(3):
        parts.stochastic.posterior.update(1 / (i + 1))
    torch.testing.assert_close(tuple(parts.stochastic.posterior.stats), tuple(whole.stochastic.posterior.stats))
    parts.stochastic.posterior.update(1.0)
    assert not torch.allclose(parts.model.q_mean, whole.model.q_mean)
    parts.polish()
    torch.testing.assert_close(parts.model.q_mean, whole.model.q_mean)


def updates(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows of each update of q(u) from now on; None for as many as in training."""
    seen: list[Any] = []
    monkeypatch.setattr(trainer.stochastic.posterior, "update", lambda rho, rows=None: seen.append(rows))
    return seen


@pytest.mark.parametrize(("steps", "rows", "expected"), [(20, 10, 1), (50, 10, 4), (200, 10, 8), (200, 30, 8)])
def test_the_end_takes_less_than_training_where_data_are_many(
    steps: int, rows: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(posterior_rows=rows)
    trainer.stochastic.steps = steps
    seen = updates(trainer, monkeypatch)
    trainer.polish()
    assert seen == [30] * expected


@pytest.mark.parametrize(
    ("limit", "pace", "expected"),
    [(None, 5.0, [30] * 8), (20.0, 1.0, [30] * 8), (3.5, 1.0, [30] * 3), (3.5, 3.0, [30]), (0.52, 1.0, [None])],
)
def test_the_end_takes_no_more_than_its_share_of_the_time(
    limit: float | None, pace: float, expected: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``limit``: passes over all 30 data that a sixth of it is enough for. An update sees 10 of them."""
    trainer = make_trainer(posterior_rows=10)
    trainer.stochastic.steps = 400
    seen = updates(trainer, monkeypatch)
    each = pass_seconds(trainer.model, trainer.likelihood, trainer.x, 30, 4)
    trainer.stochastic.polish(TimeLeft(None if limit is None else 6 * limit * each, pace=pace))
    assert seen == expected


# What is learned, and what is not


def test_inducing_points_move_in_units_of_the_inputs() -> None:
    """The same data in other units: the same run, with inducing points in those units."""
    x, y = toy_data()
    ends = []
    for unit in (1.0, 1000.0):
        kernel = ScaleKernel(RBFKernel())
        kernel.base_kernel.lengthscale = unit
        trainer = make_trainer(Identity(), data=(unit * x, y), kernel=kernel, learning_rate=1e-12, max_steps=12)
        trainer.run()
        ends.append(trainer.model.inducing.detach() / unit)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-4)
    assert spread(1000 * x) == pytest.approx(1000 * spread(x))
    assert spread(torch.ones(5, 2)) == 1.0


def prior_kernel(strict: bool) -> Any:
    kernel = ScaleKernel(
        RBFKernel(lengthscale_prior=LogNormalPrior(math.log(5.0), 0.01) if strict else None),
        outputscale_prior=GammaPrior(2.0, 0.5) if strict else None,
    )
    kernel.base_kernel.lengthscale = 0.7
    return kernel


def test_log_prior_is_the_sum_of_the_priors() -> None:
    trainer = make_trainer(kernel=prior_kernel(True))
    value = torch.distributions.LogNormal(math.log(5.0), 0.01).log_prob(torch.tensor(0.7))
    scale = trainer.model.kernel.outputscale
    value = value + torch.distributions.Gamma(2.0, 0.5).log_prob(scale)
    torch.testing.assert_close(log_prior(trainer.model, trainer.likelihood), value)
    assert log_prior(make_trainer(kernel=prior_kernel(False)).model, trainer.likelihood).item() == 0.0


def test_priors_enter_the_objective_but_neither_bound_nor_evidence() -> None:
    trainers = {
        strict: make_trainer(kernel=prior_kernel(strict), max_steps=25, learning_rate=0.1, start_rows=0)
        for strict in (False, True)
    }
    values = {}
    for strict, trainer in trainers.items():
        evidence = measure_evidence(
            trainer.model, trainer.likelihood, trainer.x, trainer.y, 8, passes=8, generator=trainer.stochastic.generator
        )
        trainer.stochastic.step()
        values[strict] = evidence, trainer.stochastic.bounds[0].item()
    assert values[True] == values[False]
    for trainer in trainers.values():
        trainer.run()
    free, held = (trainers[strict].model.kernel.base_kernel.lengthscale.item() for strict in (False, True))
    assert held > 1.2 * free


def test_local_parameters_are_never_those_of_the_scored_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a likelihood with local parameters scores the draws with parameters that were there before."""
    trainer = make_trainer(likelihood="bernoulli", start_rows=0)
    drawn, used = [], []
    sample, quadratic = trainer.stochastic.model.orbit.sample, trainer.likelihood.quadratic
    monkeypatch.setattr(trainer.model.orbit, "sample", lambda *given: drawn.append(1) or sample(*given))
    monkeypatch.setattr(
        trainer.likelihood, "quadratic", lambda y, local: used.append(len(drawn)) or quadratic(y, local)
    )
    trainer.stochastic.step()
    draws = used[-1]
    assert draws == len(drawn)  # the last use of local parameters is with the last draws
    assert len(drawn) == 2  # q(u) and its local parameters from one set of draws, the gradient from another


def test_polishing_averages_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orbitgp.training.stochastic_steps, "MOST_PASSES", 4)
    trainer = make_trainer(start_rows=0)
    trainer.stochastic.step()
    seen: list[Any] = []

    def keep(*args: Any, **kwargs: Any) -> Any:
        seen.append(statistics(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(orbitgp.training.posterior, "statistics", keep)
    trainer.polish()
    assert len(seen) == 4
    average = Statistics(*(torch.stack(parts).mean(0) for parts in zip(*seen, strict=True)))
    torch.testing.assert_close(tuple(trainer.stochastic.posterior.stats), tuple(average))
