"""The seconds of a plan against the evaluations that a fit makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orbitgp import InvariantGPClassifier
from orbitgp.datasets import digits
from orbitgp.orbits import Affine, Orbit, Rotation
from orbitgp.planning.cost import workload
from orbitgp.training.objective import Objective


@pytest.mark.slow
@pytest.mark.parametrize(("orbit", "rows"), [(Rotation(), 40), (Rotation(), 80), (Affine(), 20)], ids=str)
def test_the_plan_foresees_what_a_fit_evaluates(orbit: Orbit, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each evaluation counts as long as it takes at the nominal speed, so no clock takes part."""
    sizes = []
    plain = Objective.__call__

    def counted(objective: Objective, vector: np.ndarray) -> tuple[float, np.ndarray]:
        sizes.append((len(objective.y), objective.model.num_samples))
        return plain(objective, vector)

    monkeypatch.setattr(Objective, "__call__", counted)
    data = digits()
    model = InvariantGPClassifier(orbit, random_state=0).fit(data.x_train[:rows], data.y_train[:rows])
    work = workload(model.model_, model.likelihood_, None)
    overhead = 0.015  # seconds of an evaluation of any size: 13 ms on one core of a Xeon at 2.5 GHz, and the search's own
    took = sum(overhead + replace(work, samples=draws or 1).evaluation(count).seconds for count, draws in sizes)
    assert 0.5 < model.plan_.seconds / took < 2.0
