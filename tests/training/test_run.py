"""A run's state: what a run that continues looks up, and what it decides anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Identity
from orbitgp.planning.rungs import Rung
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training import run as run_module
from orbitgp.training.maximise import Optimum
from orbitgp.training.run import Run

RUNG = Rung(10, None)


def made(**settings: object) -> Run:
    hooks = {name: settings.pop(name) for name in ("after_step", "callback") if name in settings}
    x = torch.zeros(10, 1, dtype=torch.float64)
    run = Run(ExactGP(RBFKernel(), Identity(), x), Gaussian(), x, x, **settings)
    vars(run).update(hooks)
    run.start_records(RBFKernel(), Identity(), Gaussian())
    return run


def climb_to(value: float) -> Optimum:
    return Optimum(value, np.array([value, 2.0]), np.eye(2), value - 0.5)


def not_again(*_: object) -> Optimum:
    pytest.fail("a climb of the first run was climbed again")


def test_a_run_that_continues_looks_up_what_was_climbed_and_climbs_the_rest() -> None:
    states: list[dict[str, Any]] = []
    first = made(after_step=lambda run: states.append(run.state_dict()))
    whole = [first.climb_once(climb_to, value) for value in (1.0, 2.0, 3.0)]
    again = made()
    again.load_state_dict(states[-1])
    climbs = [not_again, not_again, climb_to]
    found = [again.climb_once(climb, value) for climb, value in zip(climbs, (1.0, 2.0, 3.0), strict=True)]
    for one, other in zip(found, whole, strict=True):
        assert (one.value, one.fresh) == (other.value, other.fresh)
        assert np.array_equal(one.vector, other.vector)
        assert np.array_equal(one.inverse_hessian, other.inverse_hessian)
    assert again.up_to_date


def test_a_state_stays_as_it_was() -> None:
    """A run that goes on, or that continues from it, does not change it."""
    states: list[dict[str, Any]] = []
    run = made(after_step=lambda run: states.append(run.state_dict()))
    run.climb_once(climb_to, 1.0)
    run.climb_once(climb_to, 2.0)
    (state,) = states
    again = made()
    again.load_state_dict(state)
    again.climb_once(not_again)
    again.climb_once(climb_to, 3.0)
    again.optima[0].vector[:] = 9.0
    assert len(state["optima"]) == 1
    assert torch.equal(state["optima"][0][1], torch.tensor([1.0, 2.0], dtype=torch.float64))


def test_a_run_that_continues_leaves_out_what_the_first_one_did(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(run_module, "time", SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[0]))
    late = made(limit=TimeLimit(100.0))
    late.climb_once(climb_to, 1.0)
    assert not late.is_late(RUNG)
    late.climb_once(climb_to, 2.0)
    late.seconds = 99.0
    assert late.is_late(RUNG)
    assert late.has_time_for(RUNG)
    late.between_climbs()
    again = made(limit=TimeLimit(100.0))
    again.load_state_dict(late.state_dict())
    again.seconds = 0.0  # on a machine that is quicker
    again.climb_once(not_again)
    assert not again.is_late(RUNG)
    again.climb_once(not_again)
    assert again.is_late(RUNG)
    again.seconds = 101.0
    assert not again.has_time_for(RUNG)
