"""The seconds of a plan against those that a fit takes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPClassifier
from orbitgp.datasets import digits
from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.orbits import Affine, Orbit, Rotation
from orbitgp.planning.cost import Workload
from orbitgp.planning.rungs import LEAST_DRAWS
from orbitgp.planning.sparse import evaluation_cost
from orbitgp.training.objective import Objective


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("orbit", "rows", "inference"),
    [(Rotation(), 25, "exact"), (Affine(), 12, "exact"), (Rotation(), 25, "sparse")],
    ids=str,
)
@pytest.mark.usefixtures("one_thread")
def test_a_plan_is_right_within_a_factor_of_two(
    orbit: Orbit, rows: int, inference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the CPU seconds of the whole fit, on a machine whose evaluations would take their nominal time."""
    evaluations, measured = list[tuple[bool, int, int]](), 0.0
    plain = Objective.__call__

    def timed(objective: Objective, vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal measured
        begun = time.process_time()
        found = plain(objective, vector)
        measured += time.process_time() - begun
        model = objective.model
        evaluations.append((isinstance(model, CollapsedGP), len(objective.y), model.num_samples or 1))
        return found

    data = digits()
    x, y = data.x_train[:rows], data.y_train[:rows]
    InvariantGPClassifier(random_state=0, max_steps=3).fit(x, y)  # what is loaded once
    monkeypatch.setattr(Objective, "__call__", timed)
    begun = time.process_time()
    fit = InvariantGPClassifier(orbit, inference=inference, random_state=0).fit(x, y)
    took, nominal = time.process_time() - begun, 0.0
    for collapsed, count, draws in evaluations:
        given = fit.model_, fit.likelihood_, torch.from_numpy(x)
        if collapsed:
            nominal += evaluation_cost(*given, draws, count).seconds
        else:
            nominal += Workload.of(*given, LEAST_DRAWS).evaluation_seconds(count, draws)
    assert 0.5 < fit.plan_.seconds / (took * nominal / measured) < 2.0
