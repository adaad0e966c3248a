"""A limit of time covers all of a sparse fit: what comes before learning, learning, the last q(u), and the evidence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import orbitgp.estimators.evidence
import orbitgp.estimators.initialise
import orbitgp.estimators.session
from orbitgp import InvariantGPRegressor
from orbitgp.estimators.evidence import bounded, sparse_evidence
from orbitgp.inference.evidence import Evidence, measure_evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Bernoulli, Gaussian, Likelihood
from orbitgp.orbits import GaussianNoise, Orbit, Permutation
from orbitgp.planning import time_limit
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training import ladder, stochastic_steps
from orbitgp.training import run as learning_run
from orbitgp.training import trainer as sparse_training
from orbitgp.training.trainer import Trainer

CLOCKED = (
    orbitgp.estimators.base,
    orbitgp.estimators.initialise,
    orbitgp.estimators.session,
    ladder,
    learning_run,
    stochastic_steps,
    sparse_training,
    time_limit,
)

pytestmark = pytest.mark.usefixtures("one_start")


class Machine:
    """A clock that counts values of the kernel between data and inducing points, so many a second, and upper bounds."""

    def __init__(self, speed: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        plain = InvariantGP.kernel_means

        def counted(model: InvariantGP, samples: Any, *rest: Any, **more: Any) -> Any:
            self.now += samples.points[..., 0].numel() * len(model.inducing) * model.inducing_samples / speed
            return plain(model, samples, *rest, **more)

        class CountedGP(ExactGP):
            def log_evidence(counted, *given: Any) -> float:
                self.now += (len(counted.x) * (counted.num_samples or 1)) ** 2 / speed
                return super().log_evidence(*given)

        monkeypatch.setattr(InvariantGP, "kernel_means", counted)
        monkeypatch.setattr(orbitgp.estimators.evidence, "ExactGP", CountedGP)
        clock = SimpleNamespace(perf_counter=lambda: self.now, process_time=lambda: self.now)
        for module in CLOCKED:
            monkeypatch.setattr(module, "time", clock)


def fitted(rows: int = 120, **options: Any) -> InvariantGPRegressor:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 2))
    y = np.sin(x[:, 0]) + 0.1 * generator.normal(size=rows)
    options = {"num_inducing": 10, "random_state": 0, **options}
    return InvariantGPRegressor(GaussianNoise(0.2), **options).fit(x, y)


@pytest.mark.parametrize(("speed", "options"), [(1e6, {}), (1e5, {"batch_size": 30})], ids=["climb", "steps"])
def test_a_fit_ends_within_its_limit(speed: float, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """At these speeds, the posterior and the evidence without a limit take longer than the whole fit may."""
    machine = Machine(speed, monkeypatch)
    limit = 1e7 / speed
    model = fitted(max_seconds=limit, **options)
    assert 0.5 * limit < machine.now < 1.1 * limit
    assert not model.converged_
    assert np.isfinite(model.evidence_.value)
    assert model.evidence_.stderr > 0
    assert model.evidence_.slack is not None


def trainer(
    orbit: Orbit | None = None,
    likelihood: Likelihood | None = None,
    rows: int = 24,
    seconds: float = 0.0,
    **options: Any,
) -> Trainer:
    """A run that climbs the bound of a few rows."""
    likelihood = likelihood or Gaussian()
    x = 4 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 2
    y = torch.sin(2 * x[:, :1])
    y = likelihood.encode((y[:, 0] > 0).long()) if isinstance(likelihood, Bernoulli) else y
    model = InvariantGP(ScaleKernel(RBFKernel()).double(), orbit or GaussianNoise(0.3).double(), x[:8])
    settings = TrainerSettings(**{"start_rows": 0, **options})
    return Trainer(model, likelihood, x, y, settings, seconds=seconds)


def scored(
    rest: TimeLeft, orbit: Orbit | None = None, likelihood: Likelihood | None = None, **options: Any
) -> tuple[Any, Trainer]:
    run = trainer(orbit, likelihood, max_steps=5, **options)
    run.run()
    run.rest = rest
    return sparse_evidence(run, torch.Generator().manual_seed(0)), run


def passes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked of those who measure the bound."""
    seen: list[dict[str, Any]] = []

    def measured(*given: Any, **options: Any) -> Any:
        seen.append(options)
        return measure_evidence(*given, **options)

    monkeypatch.setattr("orbitgp.estimators.evidence.measure_evidence", measured)
    return seen


@pytest.mark.parametrize(("likelihood", "local"), [(Gaussian(), 0), (Bernoulli(), 1)])
def test_without_time_the_evidence_has_as_few_passes_as_tell_an_error(
    likelihood: Likelihood, local: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = passes(monkeypatch)
    late, run = scored(TimeLeft(10.0, spent=11.0), likelihood=likelihood, max_seconds=10.0)
    assert (late.num_samples, late.upper) == (8, None)
    assert (seen[0]["passes"], seen[0]["local_passes"]) == (2, local)
    assert late.stderr > 0
    assert late.slack is not None
    run.rest = TimeLeft(1e9)
    early = sparse_evidence(run, torch.Generator().manual_seed(1))
    assert early.num_samples == 64
    assert (seen[1]["passes"], seen[1]["local_passes"]) == (8, 4 * local)
    assert (early.upper is None) == bool(local)
    # Both measure the same bound.
    assert late.value == pytest.approx(early.value, abs=10 * late.stderr + 0.1)


def test_whole_orbits_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = passes(monkeypatch)
    evidence, _ = scored(TimeLeft(None), Permutation.swap(0, 1), num_samples=None)
    assert seen[0]["passes"] == 1
    assert evidence.stderr == 0.0


def test_an_upper_bound_is_computed_where_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = scored(TimeLeft(None), rows=60)
    uppers = []
    for share in np.geomspace(1e-7, 1.0, 5):
        monkeypatch.setattr(TimeLeft, "share", lambda _, share=share: float(share))
        uppers.append(sparse_evidence(run, torch.Generator().manual_seed(0)).upper)
    missing = [upper is None for upper in uppers]
    assert missing == sorted(missing, reverse=True)
    assert missing[0]
    assert not missing[-1]
    with_all_rows = ExactGP(run.model.kernel, run.model.orbit, run.x, num_samples=32).log_evidence(
        run.likelihood, run.y
    )
    assert uppers[-1] == pytest.approx(with_all_rows, abs=1e-6)


def test_the_clock_begins_with_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1e9, monkeypatch)
    seen = []

    def run(trainer: Trainer) -> None:
        seen.append(trainer.seconds)
        raise InterruptedError

    plain = orbitgp.estimators.initialise.sparse_model

    def slow(*given: Any) -> InvariantGP:
        machine.now += 3.0
        return plain(*given)

    monkeypatch.setattr(orbitgp.estimators.initialise, "sparse_model", slow)
    monkeypatch.setattr(Trainer, "run", run)
    with pytest.raises(InterruptedError):
        fitted()
    assert seen == [3.0]


def test_a_run_counts_what_came_before() -> None:
    run = trainer(max_seconds=5.0, seconds=6.0)
    run.run()
    assert run.steps == 0


def bounded_by(value: float, stderr: float, upper: float) -> Evidence:
    return bounded(Evidence(value, stderr, 10, 64, "Gaussian"), upper)


def test_a_model_that_learns_nothing_falls_short_of_nothing() -> None:
    kernel, likelihood = ScaleKernel(RBFKernel()).requires_grad_(False), Gaussian().requires_grad_(False)
    x = np.linspace(0.0, 1.0, 20)[:, None]
    model = InvariantGPRegressor(kernel=kernel, likelihood=likelihood, random_state=0).fit(x, x[:, 0])
    assert model.evidence_.shortfall == 0.0


def test_a_bound_far_above_its_upper_bound_is_noise() -> None:
    """A kernel of variance 1e9 and a noise of 6e-3 scored 31,800,114 +- 12,660,355 nats, where 20 is the most there can
    be."""
    found = bounded_by(31_800_114.0, 12_660_355.0, 20.0)
    assert found.value == found.upper == 20.0
    assert found.interval[0] < -25e6


def test_a_bound_below_its_upper_bound_stays() -> None:
    found = bounded_by(10.0, 3.0, 20.0)
    assert (found.value, found.upper) == (10.0, 20.0)


def test_other_draws_may_have_more_than_those_of_the_upper_bound() -> None:
    found = bounded_by(30.0, 0.5, 20.0)
    assert found.value == found.upper == 27.5
    exact = bounded_by(30.0, 0.0, 20.0)
    assert exact.value == exact.upper == 30.0


@pytest.mark.filterwarnings("ignore")  # a limit that was met is a warning
@pytest.mark.parametrize("inference", ["exact", "sparse"])
@pytest.mark.parametrize("max_steps", [3, None])
def test_evidence_and_model_agree_on_convergence(inference: str, max_steps: int | None) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = np.sin(x[:, 0] + x[:, 1]) + 0.1 * rng.normal(size=40)
    limits = {} if max_steps is None else {"max_steps": max_steps}
    model = InvariantGPRegressor(inference=inference, random_state=0, **limits).fit(x, y)
    assert model.converged_ is model.evidence_.converged is (max_steps is None)
