"""Sparse runs of few data: they climb the collapsed bound to its top, and say so; others take stochastic steps."""

from __future__ import annotations

import io
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from orbitgp import InvariantGPRegressor, datasets
from orbitgp.inference import collapsed as collapsed_module
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.local_parameters import Setting
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, GaussianIndicators, Likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation, Rotation
from orbitgp.planning.options import TrainerSettings, TrainingOptions
from orbitgp.planning.sparse import pass_seconds
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training.checkpoint import read_checkpoint
from orbitgp.training.ladder import Ladder
from orbitgp.training.objective import representative_order
from orbitgp.training.sparse_ladders import set_last_posterior, start_ladder
from orbitgp.training.trainer import Trainer
from tests.training import fit_to_kill

ROWS = 24


def data(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(rows, 2, generator=generator, dtype=torch.float64) - 2
    return x, torch.sin(2 * x[:, :1]) + 0.1 * torch.randn(rows, 1, generator=generator, dtype=torch.float64)


def trainer(
    orbit: Orbit | None = None, likelihood: Likelihood | None = None, points: int = 8, rows: int = ROWS, **options: Any
) -> Trainer:
    x, y = data(rows)
    likelihood = likelihood or Gaussian()
    if isinstance(likelihood, Dirichlet | Bernoulli):
        y = likelihood.encode((y[:, 0] > 0).long())
    model = InvariantGP(
        ScaleKernel(RBFKernel()).double(),
        orbit or GaussianNoise(0.3).double(),
        x[:points],
        likelihood.num_latents,
        shared_covariance=likelihood.shares_curvature,
        inducing_samples=3 if orbit is None else 1,
    )
    return Trainer(model, likelihood, x, y, TrainerSettings(**{"start_rows": 0, "max_steps": 300, **options}))


@cache
def climbed() -> tuple[Trainer, list[io.BytesIO]]:
    """A run that has ended, and what it would have gone on from at each of its stages. Nobody may change it."""
    states: list[io.BytesIO] = []

    def keep(run: Trainer) -> None:
        states.append(io.BytesIO())
        torch.save(run.state_dict(), states[-1])

    run = trainer()
    run.after_step = keep
    run.run()
    return run, states


class TestSomeRows:
    @pytest.mark.parametrize("likelihood", [Gaussian(), Bernoulli()])
    def test_they_are_climbed_and_q_is_that_of_all(self, likelihood: Likelihood) -> None:
        run = trainer(Permutation.swap(0, 1), deepcopy(likelihood), rows=400, exact_seconds=2e-4)
        assert run.learn_rows is not None
        assert run.learn_rows < 400
        run.run()
        assert run.converged
        assert f"learned from {run.learn_rows} of 400 rows" in run.summary()
        order = representative_order(run.y, run.options.seed)[: run.learn_rows]
        learned = [p for p in (*run.model.parameters(), *run.likelihood.parameters()) if p.requires_grad]
        gradients = []
        for rows in (order, torch.arange(400)):  # there is no slope on the rows that were learned from, and one on all
            for parameter in learned:
                parameter.grad = None
            CollapsedGP(run.model, run.x[rows]).evidence_with_gradient(run.likelihood, run.y[rows])
            gradients.append(max(float(p.grad.abs().max()) for p in learned if p.grad is not None) / len(rows))
        assert gradients[0] < 0.25 * gradients[1]
        q_mean = run.model.q_mean.detach().clone()
        CollapsedGP(run.model, run.x).set_posterior(run.likelihood, run.y)
        assert torch.allclose(run.model.q_mean, q_mean, atol=1e-4)
        CollapsedGP(run.model, run.x[order]).set_posterior(run.likelihood, run.y[order])
        assert not torch.allclose(run.model.q_mean, q_mean, atol=1e-2)

    def test_a_run_that_goes_on_learns_from_the_same(self) -> None:
        run = trainer(rows=400, exact_seconds=3e-4, max_steps=30)
        run.callback = lambda record: run.stop() if record["step"] >= 5 else None
        run.run()
        other = trainer(rows=400)
        assert other.learn_rows == 400
        other.load_state_dict(run.state_dict())
        assert other.learn_rows == run.learn_rows
        assert other.last_rung == run.last_rung

    def test_the_evidence_says_so(self) -> None:
        x = np.random.default_rng(0).normal(size=(300, 2))
        options = TrainingOptions(exact_seconds=1e-5, start_rows=0)
        model = InvariantGPRegressor(GaussianNoise(0.1), num_inducing=5, training=options, random_state=0).fit(
            x, x[:, 0]
        )
        assert f"learned on {model.evidence_.learned_from} of 300 data" in str(model.evidence_)


class TestAtTheTop:
    @pytest.mark.parametrize(
        ("orbit", "likelihood"),
        [
            (None, Gaussian()),
            (GaussianNoise(0.3).double(), Bernoulli()),
            (Permutation.swap(0, 1), Dirichlet(2, 0.01)),
            (Identity(), Bernoulli()),
        ],
    )
    def test_the_gradient_is_gone_and_the_run_says_so(self, orbit: Orbit | None, likelihood: Likelihood) -> None:
        run = deepcopy(climbed()[0]) if orbit is None else trainer(deepcopy(orbit), deepcopy(likelihood))
        if orbit is not None:
            run.run()
        assert run.converged
        assert run.summary().startswith(f"The bound is at an optimum, after {run.steps} evaluations")
        assert run.fraction() == 1.0
        samples = run.history[-1]["num_samples"]
        collapsed = CollapsedGP(run.model, run.x, samples)
        run.model.zero_grad()
        top = collapsed.evidence_with_gradient(run.likelihood, run.y).log_evidence
        assert top == pytest.approx(run.history[-1]["bound"], abs=1e-2 if run.likelihood.num_locals else 1e-6)
        # A step along the gradient gains nothing worth having.
        learned = [
            p for p in (*run.model.parameters(), *run.likelihood.parameters()) if p.requires_grad and p.grad is not None
        ]
        gradients = [p.grad.clone() for p in learned if p.grad is not None]
        for step in (1e-4, 1e-3, 1e-2):
            for parameter, gradient in zip(learned, gradients, strict=True):
                parameter.data.add_(gradient, alpha=step)
            assert collapsed.condition(run.likelihood, run.y).log_evidence < top + 0.3
            for parameter, gradient in zip(learned, gradients, strict=True):
                parameter.data.sub_(gradient, alpha=step)

    def test_without_an_orbit_and_with_points_at_all_data_it_is_the_top_of_the_evidence(self) -> None:
        run = trainer(Identity(), points=ROWS)
        points = run.model.inducing.detach().clone()
        run.run()
        assert torch.equal(run.model.inducing, points)
        exact = ExactGP(run.model.kernel, Identity(), run.x)
        assert exact.condition(run.likelihood, run.y).log_evidence == pytest.approx(run.history[-1]["bound"], abs=0.01)

    def test_it_is_not_below_stochastic_steps(self) -> None:
        run, stepped = climbed()[0], trainer(learning_rate=0.1, max_steps=60)
        assert stepped.last_rung is None
        assert run.history[-1]["bound"] > stepped.run()[-1]["bound"] - 0.05

    def test_an_orbit_that_is_kept_stays_and_another_is_learned(self) -> None:
        kept = trainer(max_steps=10)
        kept.freeze_orbit = True
        scale = float(kept.model.orbit.describe().quantities["scale"].value)
        kept.run()
        after = [float(run.model.orbit.describe().quantities["scale"].value) for run in (kept, climbed()[0])]
        assert after[0] == scale
        assert after[1] != scale
        assert all(parameter.requires_grad for parameter in kept.model.orbit.parameters())


def test_a_noise_that_is_far_too_small_rises_within_few_evaluations() -> None:
    """An exact start leaves a noise that fits all data. A few inducing points cannot, and the bound is absurd there."""
    x, y = data(200)
    run = trainer(Identity(), Gaussian(1, 2e-6), points=10, rows=200, max_steps=40)
    begin = CollapsedGP(run.model, x).condition(run.likelihood, y).log_evidence
    run.run()
    assert begin < -1e6
    assert run.history[-1]["bound"] > -250  # a standard normal law of all targets has -284
    assert run.likelihood.noise > 1e-3


@pytest.mark.parametrize("options", [{}, {"learning_rate": 0.03}], ids=["climb", "steps"])
@pytest.mark.usefixtures("one_start")
def test_a_noise_that_has_run_off_rises_before_the_run_goes_on(options: dict[str, Any]) -> None:
    """Targets without noise leave none in an exact start, where it has no slope. A bound with slack needs some."""
    run = trainer(Identity(), Gaussian(), points=6, rows=100, start_rows=40, max_steps=100, **options)
    run.y = torch.sin(2 * run.x[:, :1])
    run.choose_start()
    assert run.likelihood.noise > 1e-3
    found = CollapsedGP(run.model, run.x).condition(run.likelihood, run.y).log_evidence
    for factor in (0.1, 10.0):
        other = deepcopy(run.likelihood)
        other.set_noise(factor * other.noise.item())
        assert CollapsedGP(run.model, run.x).condition(other, run.y).log_evidence < found
    run.run()
    assert run.history[-1]["bound"] > found


class TestLimits:
    @pytest.mark.parametrize(("limit", "rows"), [(None, 150), (1e6, 200), (101.0, 80), (4.0, 50)])
    def test_the_start_has_as_many_rows_as_there_is_time_for(self, limit: float | None, rows: int) -> None:
        """By hand: 20 evaluations of 80 rows with 16 draws take 20 * 4 * 12,296 (80 * 16)^2 operations at 16e9 a
        second, 101 s.

        A start has a quarter of the time for learning, and 50 rows at least. Without a limit it has 150, whatever they
        take.
        """
        x = torch.zeros(1, dtype=torch.float64).expand(200, 12_288)
        model = InvariantGP(ScaleKernel(RBFKernel()).double(), GaussianNoise(0.3).double(), x[:2].clone())
        seconds = None if limit is None else 4 * limit
        options = TrainerSettings(exact_seconds=1e-3 if limit is None else 1e9, max_seconds=seconds)
        ladder = start_ladder(Setting(model, Bernoulli(), x, Bernoulli().encode(torch.arange(200) % 2)), options)
        assert len(ladder.x) == rows

    @pytest.mark.parametrize(("orbit", "limit"), [(GaussianNoise(0.3), None), (Permutation.swap(0, 1), 60.0)])
    def test_the_start_says_how_far_it_has_come(self, orbit: Orbit, limit: float | None) -> None:
        x = torch.randn(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        model = InvariantGP(ScaleKernel(RBFKernel()).double(), deepcopy(orbit).double(), x[:2].clone())
        ladder = start_ladder(Setting(model, Gaussian(), x, x.sum(1, keepdim=True)), TrainerSettings(max_seconds=limit))
        seen: list[float] = []
        ladder.after_step = lambda run: seen.append(run.progress())
        ladder.learn()
        assert 0 < seen[0] < seen[-1] <= 0.99

    @pytest.mark.parametrize("steps", [1, 7, 20])
    def test_of_evaluations(self, steps: int) -> None:
        run = trainer(max_steps=steps)
        history = run.run()
        assert run.steps == history[-1]["step"] == steps
        assert not run.converged
        assert run.fraction() >= 1.0
        assert run.summary().startswith(f"The run met its limit after {steps} evaluations")
        assert torch.isfinite(run.model.q_mean).all()

    def test_of_time(self) -> None:
        run = trainer(max_seconds=1e-6)
        assert len(run.run()) == 1
        assert run.steps == 0
        assert not run.converged

    @pytest.mark.parametrize(
        ("limit", "pace", "expected"),
        [(None, 9.0, 128), (1e6, 1.0, 128), (2.0, 1.0, 64), (2.0, 2.0, 32), (0.0, 1.0, 16)],
    )
    def test_the_last_posterior_has_as_many_draws_as_there_is_time_for(
        self, limit: float | None, pace: float, expected: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A ``limit`` of 1 is one with a sixth for a quarter of the draws. They are no fewer than were learned with."""
        run = trainer(max_steps=1)
        run.run()
        assert isinstance(run.engine, Ladder)
        assert run.engine.model.num_samples == 16
        seen: list[int | None] = []
        monkeypatch.setattr(CollapsedGP, "set_posterior", lambda model, *_: seen.append(model.num_samples))
        unit = 6 * 1.001 * pass_seconds(run.model, run.likelihood, run.x, ROWS, 128) / 4
        set_last_posterior(run.engine, TimeLeft(None if limit is None else limit * unit, pace=pace))
        assert seen == [expected]

    def test_a_run_that_is_asked_to_stop_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It makes one posterior, the last one: each takes seconds where a person waits."""
        run = trainer()
        monkeypatch.setattr(CollapsedGP, "condition", lambda *_: pytest.fail("it conditions once more"))
        run.callback = lambda record: run.stop() if record["step"] >= 5 else None
        run.run()
        assert run.steps < 40
        assert not run.converged
        assert "was stopped" in run.summary()

    def test_after_a_step_by_hand_the_run_takes_steps(self) -> None:
        run = trainer(max_steps=5)
        run.stochastic.step()
        assert run.run()[-1]["step"] == run.steps == 5
        assert run.last_rung is None


class TestGoingOn:
    def test_from_every_stage_it_ends_in_the_same_place(self) -> None:
        undisturbed, states = climbed()
        assert len(states) >= 3
        for state in states:
            state.seek(0)
            again = trainer()
            with torch.no_grad():
                for parameter in again.model.parameters():
                    parameter.add_(0.1)
            again.load_state_dict(torch.load(state, weights_only=False))
            again.run()
            assert all(
                torch.equal(a, b) for a, b in zip(again.model.parameters(), undisturbed.model.parameters(), strict=True)
            )
            assert [r["bound"] for r in again.history] == [r["bound"] for r in undisturbed.history]
            assert again.steps == undisturbed.steps
            assert again.converged

    @pytest.mark.usefixtures("one_start", "short_ends")
    def test_a_fit_that_is_killed_and_resumed(self, tmp_path: Path) -> None:
        x, y = (part.numpy() for part in data())

        def make() -> InvariantGPRegressor:
            return InvariantGPRegressor(Permutation.swap(0, 1), inference="sparse", num_inducing=8, random_state=0)

        undisturbed = make().fit(x, y[:, 0])
        path = tmp_path / "run.safetensors"
        last = undisturbed.history_[-1]["step"]

        def dies(record: dict[str, Any]) -> None:
            if record["step"] >= last:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            make().fit(x, y[:, 0], checkpoint=path, checkpoint_every=0.0, callback=dies)
        assert 0 < read_checkpoint(path).steps <= last
        resumed = make().fit(x, y[:, 0], checkpoint=path, resume=True)
        assert fit_to_kill.digest(resumed) == fit_to_kill.digest(undisturbed)
        assert resumed.converged_


@pytest.mark.usefixtures("short_ends")
def test_records_tell_of_one_climb_in_the_units_of_y() -> None:
    x, y = (part.numpy() for part in data())
    seen: list[dict[str, Any]] = []
    model = InvariantGPRegressor(GaussianNoise(0.5), inference="sparse", num_inducing=8, random_state=0)
    model.fit(x, 100 * y[:, 0], callback=seen.append)
    assert [record["step"] for record in seen] == [record["step"] for record in model.history_]
    assert all(np.diff([record["step"] for record in seen]) >= 0)
    assert not any(record.get("without_orbit") for record in seen)
    assert seen[-1]["bound"] == pytest.approx(model.evidence_.value, abs=5.0)
    assert model.converged_
    assert model.evidence_.upper is not None
    assert model.history_[-1]["num_samples"] >= 32  # nobody has fixed the draws


def test_an_option_of_stochastic_steps_is_not_ignored() -> None:
    x, y = (part.numpy() for part in data())
    training = TrainingOptions(learning_rate=0.02)
    model = InvariantGPRegressor(GaussianNoise(0.5), num_inducing=8, max_steps=20, training=training, random_state=0)
    assert model.fit(x, y[:, 0]).history_[-1]["step"] == 20
    assert "evaluations" not in model.diagnostics_


@pytest.mark.usefixtures("one_start", "short_ends")
def test_the_user_fixes_the_draws() -> None:
    """The bound that was climbed is that of the orbit of so many draws, and the top of no other."""
    x, y = (part.numpy() for part in data())
    settings: dict[str, Any] = {"inference": "sparse", "num_inducing": 8, "random_state": 0, "normalize_y": False}
    fixed = InvariantGPRegressor(GaussianNoise(0.5, learn=False), num_samples=6, **settings).fit(x, y[:, 0])
    assert {record["num_samples"] for record in fixed.history_} == {6}
    assert fixed.converged_
    tops = [
        CollapsedGP(fixed.model_, torch.from_numpy(x), samples)
        .condition(fixed.likelihood_, torch.from_numpy(y))
        .log_evidence
        for samples in (6, 12)
    ]
    assert fixed.history_[-1]["bound"] == pytest.approx(tops[0], abs=1e-5)
    assert abs(tops[1] - tops[0]) > 1e-3
    finite = InvariantGPRegressor(Permutation.swap(0, 1), num_samples=2, **settings).fit(x, y[:, 0])
    assert {record["num_samples"] for record in finite.history_} == {None}


def of_digits(learn_points: bool = True) -> Trainer:
    """40 digits under rotations, with 16 inducing points: 1,024 coordinates."""
    digits = datasets.digits()
    x, labels = torch.from_numpy(digits.x_train[:40]).double(), torch.from_numpy(digits.y_train[:40])
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = 3.0
    likelihood, orbit = GaussianIndicators(10), Rotation(30, learn=False).double()
    model = InvariantGP(kernel, orbit, x[:16], 10, shared_covariance=True, inducing_samples=4)
    model.inducing.requires_grad_(learn_points)
    return Trainer(model, likelihood, x, likelihood.encode(labels), TrainerSettings(start_rows=0, climb_samples=4))


def test_inducing_points_by_the_thousand_find_their_place_within_few_evaluations() -> None:
    """They move in units of the distance between inputs. In units of their spread, 389 evaluations led to a lower
    top."""
    run, still = of_digits(), of_digits(learn_points=False)
    bound = run.run()[-1]["bound"]
    assert run.converged
    assert run.steps < 200
    assert bound > still.run()[-1]["bound"] + 20  # points are worth learning
    exact = ExactGP(run.model.kernel, run.model.orbit, run.x, 10, num_samples=4)
    assert bound < exact.condition(run.likelihood, run.y).log_evidence


def test_a_climb_ends_where_little_is_left_beside_the_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    fine, coarse = of_digits(), of_digits()
    monkeypatch.setattr(collapsed_module, "_SLACK_SHARE", 0.0)
    top = fine.run()[-1]["bound"]
    monkeypatch.setattr(collapsed_module, "_SLACK_SHARE", 0.02)
    bound = coarse.run()[-1]["bound"]
    assert coarse.converged
    assert coarse.steps < 0.9 * fine.steps
    slack = CollapsedGP(coarse.model, coarse.x, 4).condition(coarse.likelihood, coarse.y).slack
    assert top - 0.2 * slack < bound < top
