"""Sparse training: reproducible, resumable, from a good start, and what it reaches."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch.utils._pytree import tree_leaves

from orbitgp.inference.exact import ExactGP
from orbitgp.orbits import GaussianNoise, Identity
from orbitgp.planning.options import TrainerSettings
from tests.training.sparse_run import KINDS, Slide, assert_same, make_trainer, parameters, toy_data, without_seconds

pytestmark = pytest.mark.usefixtures("double")


# Reproducible, resumable


@pytest.mark.parametrize("kind", ["natural, part of the data", "bernoulli"])
def test_the_seed_decides_every_bit(kind: str) -> None:
    state = torch.get_rng_state()
    first, again, other = (make_trainer(**KINDS[kind], seed=seed) for seed in (3, 3, 4))
    assert without_seconds(first.run()) == without_seconds(again.run())
    assert_same(parameters(first), parameters(again))
    assert torch.equal(first.stochastic.minibatches.take(9), again.stochastic.minibatches.take(9))
    assert not torch.equal(first.stochastic.minibatches.take(9), other.stochastic.minibatches.take(9))
    assert torch.equal(torch.get_rng_state(), state)  # no global generator is touched


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_from_a_state_ends_in_the_same_place(kind: str) -> None:
    states = {}

    def keep(trainer: Any) -> None:
        buffer = io.BytesIO()
        torch.save(trainer.state_dict(), buffer)
        states[trainer.steps] = buffer

    def trainer(**more: Any) -> Any:
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
def test_a_state_is_not_changed_by_the_run_that_goes_on_from_it(kind: str) -> None:
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


def tensors(state: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_a_state_is_moved_to_the_device_of_the_data(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_training_raises_the_bound_and_learns_the_noise() -> None:
    data = toy_data()
    data = data[0][:, :1], data[1]
    history = make_trainer(Identity(), data=data, max_steps=60, batch_size=30, learning_rate=0.1, size=12).run()
    assert history[-1]["bound"] > history[0]["bound"] + 10
    assert 0.003 < history[-1]["noise"] < 0.04  # the data have 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_a_run_that_continues_after_screening_ends_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitgp.training.trainer.SHORTEST", 8)
    few_draws = {"start_rows": 10, "exact_seconds": 0.01}
    whole = make_trainer(**few_draws)
    states = []
    whole.after_step = lambda run: states.append(copy.deepcopy(run.state_dict()))
    whole.run()
    again = make_trainer(**few_draws, perturbed=True)
    again.load_state_dict(states[0])
    assert again.steps == 0
    assert again.screened
    again.run()
    assert_same(parameters(whole), parameters(again))


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "wide"), [(1, True), (0, False)])
@pytest.mark.usefixtures("one_start")
def test_screening_finds_how_far_the_orbit_goes(axis: int, wide: bool) -> None:
    """y depends on the first coordinate alone: along the second the orbit should be wide, along the first narrow."""
    trainer = make_trainer(Slide(axis, 0.5), size=60, max_steps=200, num_samples=16, start_rows=30, exact_seconds=0.01)
    assert not trainer.screened
    before = trainer.model.inducing.clone()
    trainer.choose_start()
    assert trainer.screened
    assert trainer.steps == 0
    width = abs(trainer.model.orbit.width.item())
    assert width > 1.0 if wide else width < 0.3
    assert not torch.equal(before, trainer.model.inducing)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.usefixtures("one_start")
def test_by_default_the_orbit_is_that_of_the_exact_evidence(axis: int) -> None:
    """The widths that a grid search finds by the exact evidence of all data; steps along the bound leave it there."""
    trainer = make_trainer(Slide(axis, 1.0), size=20, max_steps=100, start_rows=20, exact_seconds=0.1)
    trainer.choose_start()
    assert trainer.screened
    found = trainer.model.orbit.width.item()
    exact = ExactGP(trainer.model.kernel, trainer.model.orbit, trainer.x, num_samples=32)

    def evidence(width: Any) -> float:
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
    assert trainer.state_dict()["freeze_orbit"]


def test_short_runs_are_not_screened() -> None:
    assert make_trainer(Slide(0, 1.0), max_steps=99).screened
    assert not make_trainer(Slide(0, 1.0), max_steps=100, start_rows=20).screened
    assert make_trainer(Slide(0, 1.0), max_steps=100, start_rows=0).screened


def test_a_run_that_is_stopped_in_screening_has_made_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(Slide(0, 1.0), max_steps=100, start_rows=20)
    monkeypatch.setattr(ExactGP, "condition", lambda *_: pytest.fail("nobody waits for the posterior of a start"))
    trainer.stop()
    trainer.choose_start()
    assert not trainer.screened


@pytest.mark.slow
def test_a_run_ends_when_the_bound_is_level_and_says_so() -> None:
    kernel = ScaleKernel(RBFKernel()).requires_grad_(False)  # so that the bound is level early
    trainer = make_trainer(Identity(), kernel=kernel, max_steps=199, batch_size=30, learning_rate=0.1)
    trainer.run()
    assert trainer.converged
    assert trainer.steps < 199
    assert "stopped rising" in trainer.summary()
    short = make_trainer(Identity(), max_steps=10, batch_size=30, learning_rate=0.03)
    short.run()
    assert not short.converged
    assert "limit" in short.summary()


def test_a_frozen_orbit_stays_frozen() -> None:
    for orbit in (GaussianNoise(0.3, learn=False), Slide(0, 0.3).requires_grad_(False)):
        before = copy.deepcopy(orbit.state_dict())
        trainer = make_trainer(orbit)
        assert trainer.screened  # nothing to try
        trainer.run()
        assert_same(orbit.state_dict(), before)
        known = {id(p) for group in trainer.stochastic.optimizer.param_groups for p in group["params"]}
        assert not known & {id(p) for p in orbit.parameters()}


def test_everything_else_moves() -> None:
    trainer = make_trainer()
    before = copy.deepcopy(parameters(trainer))
    trainer.run()
    after = parameters(trainer)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    fixed = {name for name in before if "centre" in name or "unit" in name or "constraint" in name}
    assert moved == set(before) - fixed


# Failure


@pytest.mark.parametrize("max_steps", [20, 1000])  # with a record at every step, and at every tenth
def test_a_bound_that_is_not_a_number_is_one_clear_error(max_steps: int) -> None:
    x, y = toy_data()
    y = torch.where(torch.arange(30)[:, None] == 4, torch.nan, y)
    trainer = make_trainer(data=(x, y), max_steps=max_steps, batch_size=30, learning_rate=0.02)
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
def test_options_that_make_no_sense(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainerSettings(**options)
