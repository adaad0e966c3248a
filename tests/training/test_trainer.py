"""Training: reproducible, resumable, within its budget, and better than what it is compared with."""

from __future__ import annotations

import copy
import io
import itertools
import math

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch.utils._pytree import tree_leaves

import orbitgp.training.posterior
import orbitgp.training.stochastic_steps
from orbitgp.inference.elbo import elbo
from orbitgp.inference.evidence import measure_evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.inducing_points import initial_inducing
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import Statistics, statistics
from orbitgp.inference.rows import Minibatches, spread
from orbitgp.likelihoods import Classification, Gaussian, make_likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.sparse_cost import pass_seconds, step_seconds
from orbitgp.planning.time_limit import TimeLeft
from orbitgp.training import sparse_ladders
from orbitgp.training.objective import log_prior
from orbitgp.training.stochastic_steps import StochasticSteps
from orbitgp.training.trainer import Trainer
from tests.likelihoods.own import Difference

pytestmark = pytest.mark.usefixtures("double")


class Slide(Orbit):
    """x with one coordinate moved by up to +-width."""

    num_draws = 1
    reach = ("width",)

    def __init__(self, axis, width):
        super().__init__()
        self.axis = axis
        self.width = torch.nn.Parameter(torch.tensor(float(width)))

    def transform(self, x, u):
        direction = torch.nn.functional.one_hot(torch.tensor(self.axis), x.shape[1])
        return x[:, None] + self.width * (2 * u - 1) * direction


def toy_data(rows=30):
    """A function of the first coordinate alone."""
    generator = torch.Generator().manual_seed(7)
    x = 4 * torch.rand(rows, 2, generator=generator) - 2
    return x, torch.sin(3 * x[:, :1]) + 0.1 * torch.randn(rows, 1, generator=generator)


def make_trainer(orbit=None, likelihood=None, size=8, perturbed=False, kernel=None, data=None, hooks=None, **options):
    """A small run; ``perturbed`` starts it from other parameters, as someone would who is about to load a state."""
    x, y = data or toy_data()
    orbit = orbit or Slide(1, 0.5)
    if isinstance(likelihood, str):
        likelihood = make_likelihood(likelihood, num_classes={"bernoulli": 2}.get(likelihood, 3))
    if isinstance(likelihood, Classification):
        classes = likelihood.num_classes
        y = likelihood.encode((y[:, 0] > 0).long() + (y[:, 0] > 0.7).long() * (classes - 2))
    likelihood = likelihood or Gaussian(y.shape[1])
    kernel = kernel or ScaleKernel(RBFKernel())
    inducing = initial_inducing(x, orbit, kernel, size, generator=torch.Generator().manual_seed(int(perturbed)))
    shares = likelihood.shares_curvature
    model = InvariantGP(kernel, orbit, inducing, likelihood.num_latents, "constant", shares)
    if perturbed:
        with torch.no_grad():
            for parameter in (*model.parameters(), *likelihood.parameters()):
                parameter.add_(0.1)
    settings = {"max_steps": 8, "batch_size": 12, "num_samples": 4, "start_rows": 0, **options}
    return Trainer(model, likelihood, x, y, TrainerSettings(**settings), **(hooks or {}))


def parameters(trainer):
    return {**trainer.model.state_dict(), **{f"likelihood.{n}": p for n, p in trainer.likelihood.state_dict().items()}}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def without_seconds(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


KINDS = {
    "natural": {},
    "natural, part of the data": {"posterior_rows": 20, "posterior_samples": 8},
    "iid": {"sampler": "iid"},
    "bernoulli": {"likelihood": "bernoulli"},
    "stick-breaking": {"likelihood": "stick-breaking"},
    "coupled": {"likelihood": Difference()},
    "enumerated": {"orbit": Permutation.swap(0, 1)},
}


# Reproducible, resumable


@pytest.mark.parametrize("kind", ["natural, part of the data", "bernoulli"])
def test_the_seed_decides_every_bit(kind):
    state = torch.get_rng_state()
    first, again, other = (make_trainer(**KINDS[kind], seed=seed) for seed in (3, 3, 4))
    assert without_seconds(first.run()) == without_seconds(again.run())
    assert_same(parameters(first), parameters(again))
    assert torch.equal(first.stochastic.minibatches.take(9), again.stochastic.minibatches.take(9))
    assert not torch.equal(first.stochastic.minibatches.take(9), other.stochastic.minibatches.take(9))
    assert torch.equal(torch.get_rng_state(), state)  # no global generator is touched


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_from_a_state_ends_in_the_same_place(kind):
    states = {}

    def keep(trainer):
        buffer = io.BytesIO()
        torch.save(trainer.state_dict(), buffer)
        states[trainer.steps] = buffer

    def trainer(**more):
        return make_trainer(**{**KINDS[kind], "orbit": copy.deepcopy(KINDS[kind].get("orbit"))}, **more)

    whole = trainer(hooks={"after_step": keep})
    history = whole.run()
    for at in (2, 5):  # just after the screening, and in the middle
        resumed = trainer(perturbed=True)
        states[at].seek(0)
        resumed.load_state_dict(torch.load(states[at], weights_only=True))  # nothing in it but numbers
        assert resumed.steps == at
        assert resumed.screened
        assert without_seconds(resumed.run()) == without_seconds(history)
        assert_same(parameters(resumed), parameters(whole))


@pytest.mark.parametrize("kind", ["natural", "bernoulli"])
def test_a_state_is_not_changed_by_the_run_that_goes_on_from_it(kind):
    whole = make_trainer(**KINDS[kind])
    whole.stochastic.step()
    state = copy.deepcopy(whole.state_dict())
    ends = []
    for _ in range(2):
        trainer = make_trainer(**KINDS[kind], perturbed=True)
        trainer.load_state_dict(state)
        trainer.run()
        ends.append((parameters(trainer), without_seconds(trainer.history)))
    assert_same(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
    assert state["engine"]["history"] == []


def tensors(state):
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_a_state_is_moved_to_the_device_of_the_data(kind, monkeypatch):
    """A state from a file lies on the CPU. Here the data lie on the device "meta", whose tensors have no numbers."""
    trainer = make_trainer(**{**KINDS[kind], "orbit": copy.deepcopy(KINDS[kind].get("orbit"))})
    for _ in range(3):
        trainer.stochastic.step()
    state = trainer.state_dict()
    handed = {}
    parts = trainer.stochastic._parts()
    for name, part in parts.items():
        monkeypatch.setattr(part, "load_state_dict", lambda state, name=name: handed.update({name: state}))
    monkeypatch.setattr(trainer.stochastic, "_parts", lambda: parts)
    trainer.x = trainer.x.to("meta")
    trainer.load_state_dict(state)
    assert handed.keys() == parts.keys()
    moved = [*tensors(handed), *trainer.stochastic.bounds]
    assert len(moved) == len(tensors(state)) - 1 + 3  # the bounds of three steps are one tensor in the state
    assert {tensor.device.type for tensor in moved} == {"meta"}
    assert {tensor.device.type for tensor in tensors(state)} == {"cpu"}


# What it reaches


@pytest.mark.slow
def test_training_raises_the_bound_and_learns_the_noise():
    data = toy_data()
    data = data[0][:, :1], data[1]
    history = make_trainer(Identity(), data=data, max_steps=60, batch_size=30, learning_rate=0.1, size=12).run()
    assert history[-1]["bound"] > history[0]["bound"] + 10
    assert 0.003 < history[-1]["noise"] < 0.04  # the data have 0.01


@pytest.mark.slow
def test_a_run_that_continues_after_screening_ends_the_same(monkeypatch):
    monkeypatch.setattr(sparse_ladders, "SHORTEST", 8)
    whole = make_trainer(start_rows=10)
    states = []
    whole.after_step = lambda run: states.append(copy.deepcopy(run.state_dict()))
    whole.run()
    again = make_trainer(start_rows=10, perturbed=True)
    again.load_state_dict(states[0])
    assert again.steps == 0
    assert again.screened
    again.run()
    assert_same(parameters(whole), parameters(again))


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "wide"), [(1, True), (0, False)])
def test_screening_finds_how_far_the_orbit_goes(axis, wide):
    """y depends on the first coordinate alone: along the second the orbit should be wide, along the first narrow."""
    trainer = make_trainer(Slide(axis, 0.5), size=60, max_steps=200, num_samples=16, start_rows=30)
    assert not trainer.screened
    before = trainer.model.inducing.clone()
    trainer.choose_start()
    assert trainer.screened
    assert trainer.steps == 0
    width = abs(trainer.model.orbit.width.item())
    assert width > 1.0 if wide else width < 0.3
    assert not torch.equal(before, trainer.model.inducing)


@pytest.mark.parametrize("axis", [0, 1])
def test_by_default_the_orbit_is_that_of_the_exact_evidence(axis):
    """The widths that a grid search finds by the exact evidence of all data; steps along the bound leave it there."""
    trainer = make_trainer(Slide(axis, 1.0), size=60, max_steps=100)
    trainer.choose_start()
    assert trainer.screened
    found = trainer.model.orbit.width.item()
    exact = ExactGP(trainer.model.kernel, trainer.model.orbit, trainer.x, num_samples=128)

    def evidence(width):
        with torch.no_grad():
            trainer.model.orbit.width.fill_(width)
        return exact.condition(trainer.likelihood, trainer.y).log_evidence

    widths = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]
    assert evidence(found) > max(map(evidence, widths)) - 1.0
    with torch.no_grad():
        trainer.model.orbit.width.fill_(found)
    trainer.after_step = lambda t: t.stop() if t.steps == 3 else None
    trainer.run()
    assert trainer.model.orbit.width.item() == found
    assert trainer.model.orbit.width.requires_grad
    assert trainer.state_dict()["keeps_orbit"]


def test_short_runs_and_those_of_coupled_functions_are_not_screened():
    assert make_trainer(Slide(0, 1.0), max_steps=99).screened
    assert not make_trainer(Slide(0, 1.0), max_steps=100, start_rows=20).screened
    assert make_trainer(Slide(0, 1.0), max_steps=100, start_rows=0).screened


def test_a_run_that_is_stopped_in_screening_has_made_no_choice():
    trainer = make_trainer(Slide(0, 1.0), max_steps=100, start_rows=20)
    trainer.stop()
    trainer.choose_start()
    assert not trainer.screened


def test_rates_are_in_units_of_the_inputs():
    """Noise on inputs that are a thousand times as large is learned a thousand times as fast; angles are not."""
    rates = []
    for unit in (1.0, 1e3):
        x, y = toy_data()
        trainer = make_trainer(GaussianNoise(0.1 * unit), data=(unit * x, y), start_rows=0)
        scale, inducing = trainer.model.orbit.scale, trainer.model.inducing
        of = {id(p): group["lr"] for group in trainer.stochastic.optimizer.param_groups for p in group["params"]}
        rates.append([of[id(scale)], of[id(inducing)]])
    assert rates[1] == pytest.approx([1e3 * rate for rate in rates[0]])


def test_inducing_points_cool_down_from_the_beginning(monkeypatch):
    monkeypatch.setattr("orbitgp.training.learning_rates._WARMUP", 1)
    trainer = make_trainer(Slide(0, 1.0), max_steps=20, start_rows=0)
    for _ in range(8):
        trainer.stochastic.step()
    groups = trainer.stochastic.optimizer.param_groups
    assert sum(group["cools"] for group in groups) == 1
    for group in groups:
        assert group["cools"] == (group["params"][0] is trainer.model.inducing)
        assert group["lr"] < 0.8 * group["first"] if group["cools"] else group["lr"] == group["first"]


def test_inducing_points_at_all_data_stay_there():
    x, y = toy_data()
    trainer = make_trainer(Identity(), data=(x, y), size=len(x), start_rows=0)
    assert not any(group["cools"] for group in trainer.stochastic.optimizer.param_groups)


def test_the_jitter_follows_the_noise_down_and_not_below_what_failed():
    trainer = make_trainer(Identity(), start_rows=0)
    trainer.model.jitter = 1e-6
    with torch.no_grad():
        trainer.likelihood.log_noise.fill_(math.log(1e-5))
    trainer.stochastic.posterior.factor()
    assert trainer.model.jitter == pytest.approx(1e-11, rel=0.2)
    trainer.model.jitter, trainer.stochastic.posterior.failed_jitter = 1e-6, 1e-9
    trainer.stochastic.posterior.factor()
    assert trainer.model.jitter == 1e-6


@pytest.mark.slow
def test_a_run_ends_when_the_bound_is_level_and_says_so():
    trainer = make_trainer(Identity(), max_steps=400, batch_size=30, learning_rate=0.03)
    trainer.run()
    assert trainer.converged
    assert trainer.steps < 400
    assert "stopped rising" in trainer.summary()
    short = make_trainer(Identity(), max_steps=30, batch_size=30, learning_rate=0.03)
    short.run()
    assert not short.converged
    assert "limit" in short.summary()


# The budget, the history


class Clock:
    """Every look at it takes half a second, so that a step takes half a second too."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        self.now += 0.5
        return self.now


def test_the_time_budget_is_kept(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(orbitgp.training.stochastic_steps, "time", clock)
    trainer = make_trainer(max_steps=100_000, max_seconds=12.0, start_rows=0)
    history = trainer.run()
    assert 12.0 <= history[-1]["seconds"] < 13.0
    assert clock.now < 26.0  # two looks at the clock for each step
    assert trainer.steps > 10
    assert trainer.fraction() >= 1.0
    each = step_seconds(trainer.model, trainer.likelihood, trainer.x, trainer.options)
    assert trainer.stochastic.pace == pytest.approx(history[-1]["seconds"] / trainer.steps / each)
    group = trainer.stochastic.optimizer.param_groups[0]
    assert group["lr"] < 0.2 * group["first"]  # the schedule came to its end


def test_the_history_is_complete():
    seen = []
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
    trainer = make_trainer(GaussianNoise(0.1), kernel=kernel, max_steps=32, hooks={"callback": seen.append}, start_rows=0)
    history = trainer.run()
    assert history is trainer.history
    assert seen == history
    assert [record["step"] for record in history] == list(range(1, 33))
    assert all(later["seconds"] > earlier["seconds"] for earlier, later in itertools.pairwise(history))
    for record in history:
        assert set(record) - {"orbit_snr"} == {
            *("step", "seconds", "bound", "orbit", "outputscale", "lengthscale", "noise"),
            *("blend", "cone_exits", "failed_factors", "jitter"),
        }
        assert all(math.isfinite(v) for name, v in record.items() if name != "orbit")
        assert record["orbit"].keys() == {"scale"}
    last = history[-1]
    assert last["orbit_snr"] > 0
    assert last["orbit"]["scale"] == pytest.approx(trainer.model.orbit.scale.abs().item())
    assert last["outputscale"] == pytest.approx(kernel.outputscale.item())
    assert last["lengthscale"] == pytest.approx(kernel.base_kernel.lengthscale.median().item())
    assert last["noise"] == pytest.approx(trainer.likelihood.noise.item())


def test_a_long_run_has_about_a_hundred_records(monkeypatch):
    def step(run):
        run.steps += 1
        run.bounds.append(torch.tensor(float(run.steps)))

    monkeypatch.setattr(StochasticSteps, "step", step)
    history = make_trainer(max_steps=955, start_rows=0).run()
    assert [record["step"] for record in history] == [*range(9, 955, 9), 955]
    assert history[1]["bound"] == 14.0  # the mean of 10 to 18


def test_records_hold_the_mean_bound_since_the_last_one():
    trainer = make_trainer(start_rows=0, max_steps=1000)
    for _ in range(5):
        trainer.stochastic.step()
    bounds = torch.stack(trainer.stochastic.bounds)
    assert trainer.stochastic.record()["bound"] == pytest.approx(bounds.mean().item())
    trainer.stochastic.step()
    (bound,) = trainer.stochastic.bounds
    assert trainer.stochastic.record()["bound"] == pytest.approx(bound.item())


def test_a_run_that_is_asked_to_stop_does():
    trainer = make_trainer(hooks={"after_step": lambda t: t.stop() if t.steps == 7 else None}, max_steps=1000)
    trainer.run()
    assert trainer.steps == 7


def test_rates_warm_up_hold_and_fall_to_zero(monkeypatch):
    monkeypatch.setattr("orbitgp.training.learning_rates._WARMUP", 4)
    trainer = make_trainer(start_rows=0, max_steps=20)
    groups, seen = trainer.stochastic.optimizer.param_groups, []
    trainer.after_step = lambda t: seen.append([group["lr"] / group["first"] for group in groups])
    trainer.run()
    for group, factors in zip(groups, zip(*seen, strict=True), strict=True):
        if group["cools"]:
            assert factors[-1] < 0.05 < 0.45 < factors[len(factors) // 2] < 0.7
            continue
        assert list(factors[:4]) == pytest.approx([0.25, 0.5, 0.75, 1.0])
        assert list(factors[4:11]) == pytest.approx([1.0] * 7)
        assert all(later < earlier for earlier, later in itertools.pairwise(factors[10:]))
        assert factors[-1] < 0.03


def test_q_steps_are_shorter_where_they_are_noisy_or_coupled():
    assert make_trainer().stochastic.posterior.rho() == 1.0
    assert make_trainer(posterior_rows=20).stochastic.posterior.rho() == 0.5
    assert make_trainer(likelihood=Difference()).stochastic.posterior.rho() == 0.5
    assert make_trainer().stochastic.posterior.rho(0.4) == 0.4  # as the rates fall, q(u) averages over more steps
    assert make_trainer().stochastic.posterior.rho(0.0) == 0.1


def test_parts_of_the_data_stand_for_all_of_them(monkeypatch):
    """The bounds of an epoch average to that of all data; q(u) from half of some equal data is q(u) from all of them."""
    monkeypatch.setattr("orbitgp.training.learning_rates._INDUCING_RATE", 1e-12)
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


def test_minibatches_use_every_datum_once_before_any_again():
    minibatches = Minibatches(30, torch.Generator().manual_seed(0))
    rows = torch.cat([minibatches.take(7) for _ in range(30)])
    for epoch in rows.split(30):
        assert sorted(epoch.tolist()) == list(range(30))
    assert not torch.equal(rows[:30], rows[30:60])


def test_refits_from_parts_of_the_data_average_to_one_from_all():
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


def test_the_end_takes_less_than_training_where_data_are_many(monkeypatch):
    seen = []
    for steps, rows in ((20, 10), (200, 10), (200, 30)):
        trainer = make_trainer(posterior_rows=rows)
        trainer.stochastic.steps = steps
        monkeypatch.setattr(trainer.stochastic.posterior, "polish", lambda passes, rows: seen.append(passes))
        trainer.polish()
    assert seen == [1, 10, 10]


@pytest.mark.parametrize(
    ("limit", "pace", "expected"),
    [
        (None, 5.0, (10, 30)),
        (20.0, 1.0, (10, 30)),
        (3.5, 1.0, (3, 30)),
        (3.5, 3.0, (1, 30)),
        (0.52, 1.0, (1, 15)),
        (0.0, 1.0, (1, 10)),
    ],
)
def test_the_end_takes_no_more_than_its_share_of_the_time(limit, pace, expected, monkeypatch):
    """``limit``: passes over all 30 data that a sixth of it is enough for. An update sees 10 of them."""
    trainer = make_trainer(posterior_rows=10)
    trainer.stochastic.steps = 400
    seen = []
    monkeypatch.setattr(trainer.stochastic.posterior, "polish", lambda *given: seen.append(given))
    each = pass_seconds(trainer.model, trainer.likelihood, trainer.x, 30, 4)
    trainer.stochastic.polish(TimeLeft(None if limit is None else 6 * limit * each, pace=pace))
    assert seen == [expected]


# What is learned, and what is not


def test_a_frozen_orbit_stays_frozen():
    for orbit in (GaussianNoise(0.3, learn=False), Slide(0, 0.3).freeze()):
        before = copy.deepcopy(orbit.state_dict())
        trainer = make_trainer(orbit)
        assert trainer.screened  # nothing to try
        trainer.run()
        assert_same(orbit.state_dict(), before)
        known = {id(p) for group in trainer.stochastic.optimizer.param_groups for p in group["params"]}
        assert not known & {id(p) for p in orbit.parameters()}


def test_everything_else_moves():
    trainer = make_trainer()
    before = copy.deepcopy(parameters(trainer))
    trainer.run()
    after = parameters(trainer)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    fixed = {name for name in before if "centre" in name or "unit" in name or "constraint" in name}
    assert moved == set(before) - fixed


def test_inducing_points_move_in_units_of_the_inputs():
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


def prior_kernel(strict):
    kernel = ScaleKernel(
        RBFKernel(lengthscale_prior=LogNormalPrior(math.log(5.0), 0.01) if strict else None),
        outputscale_prior=GammaPrior(2.0, 0.5) if strict else None,
    )
    kernel.base_kernel.lengthscale = 0.7
    return kernel


def test_log_prior_is_the_sum_of_the_priors():
    trainer = make_trainer(kernel=prior_kernel(True))
    value = torch.distributions.LogNormal(math.log(5.0), 0.01).log_prob(torch.tensor(0.7))
    scale = trainer.model.kernel.outputscale
    value = value + torch.distributions.Gamma(2.0, 0.5).log_prob(scale)
    torch.testing.assert_close(log_prior(trainer.model), value)
    assert log_prior(make_trainer(kernel=prior_kernel(False)).model).item() == 0.0


def test_priors_enter_the_objective_but_neither_bound_nor_evidence():
    trainers = {
        strict: make_trainer(kernel=prior_kernel(strict), max_steps=25, learning_rate=0.1, start_rows=0)
        for strict in (False, True)
    }
    values = {}
    for strict, trainer in trainers.items():
        evidence = measure_evidence(
            trainer.model, trainer.likelihood, trainer.x, trainer.y, 8, generator=trainer.stochastic.generator
        )
        trainer.stochastic.step()
        values[strict] = evidence, trainer.stochastic.bounds[0].item()
    assert values[True] == values[False]
    for trainer in trainers.values():
        trainer.run()
    free, held = (trainers[strict].model.kernel.base_kernel.lengthscale.item() for strict in (False, True))
    assert held > 1.2 * free


def test_local_parameters_are_never_those_of_the_scored_draws():
    """Every step of a likelihood with local parameters scores the draws with parameters that were there before."""
    trainer = make_trainer(likelihood="bernoulli", start_rows=0)
    drawn, used = [], []
    sample, quadratic = trainer.stochastic._sample, trainer.likelihood.quadratic
    trainer.stochastic._sample = lambda rows, n: drawn.append(1) or sample(rows, n)
    trainer.stochastic.posterior.sample = trainer.stochastic._sample
    trainer.likelihood.quadratic = lambda y, local: used.append(len(drawn)) or quadratic(y, local)
    trainer.stochastic.step()
    draws = used[-1]
    assert draws == len(drawn)  # the last use of local parameters is with the last draws
    assert len(drawn) == 2  # q(u) and its local parameters from one set of draws, the gradient from another


def test_polishing_averages_passes(monkeypatch):
    monkeypatch.setattr(orbitgp.training.stochastic_steps, "_POLISH_PASSES", 4)
    trainer = make_trainer(start_rows=0)
    trainer.stochastic.step()
    seen = []

    def keep(*args, **kwargs):
        seen.append(statistics(*args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(orbitgp.training.posterior, "statistics", keep)
    before = trainer.stochastic.posterior.stats
    trainer.polish()
    assert len(seen) == 4
    average = Statistics(*(torch.stack(parts).mean(0) for parts in zip(*seen, strict=True)))
    # What was there before counts as four more.
    expected = before.mix(average, 0.5)
    torch.testing.assert_close(tuple(trainer.stochastic.posterior.stats), tuple(expected))


# Failure


@pytest.mark.parametrize("max_steps", [20, 1000])  # with a record at every step, and at every tenth
def test_a_bound_that_is_not_a_number_is_one_clear_error(max_steps):
    x, y = toy_data()
    y = torch.where(torch.arange(30)[:, None] == 4, torch.nan, y)
    trainer = make_trainer(data=(x, y), max_steps=max_steps, batch_size=30)
    with pytest.raises(FloatingPointError, match="learning rate"):
        trainer.run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"posterior_rows": -1}, "posterior_rows must be at least 1, got -1"),
        ({"max_seconds": 0.0}, "max_seconds must be positive and finite, got 0"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        TrainerSettings(**options)
