"""Functions of the tasks have their symmetries, what is refuted is dropped, and molecules are read and learned."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments import molecules, regret

pytestmark = pytest.mark.usefixtures("double")


def test_functions_have_the_symmetry_of_their_task() -> None:
    x = torch.rand(20, 3)
    for name, cyclic in (("cyclic, 3-D", True), ("false, 3-D", False)):
        f, most = regret.function(regret.TASKS[name], seed=0)
        assert torch.allclose(f(x[:, [1, 2, 0]]), f(x), atol=1e-8) == cyclic
        assert not torch.allclose(f(x[:, [1, 0, 2]]), f(x), atol=1e-8)
        assert float(f(x).max()) <= most


def test_a_false_symmetry_is_refuted_by_few_observations_and_a_true_one_is_kept() -> None:
    for name, kept in (("false, 3-D", "none"), ("cyclic, 3-D", "cyclic(3)")):
        task = regret.TASKS[name]
        f, _ = regret.function(task, seed=1)
        x = 0.3 + 0.4 * torch.rand(60, 3)
        assert regret.choose(task, "found", x, f(x)).group == kept


@pytest.mark.slow
@pytest.mark.parametrize("method", regret.TASKS["almost, 3-D"].methods)
def test_every_method_takes_steps(method: Any) -> None:
    found = regret.run(regret.Job("almost, 3-D", method, 0, 2, time.time() + 600))
    assert found is not None
    assert len(found["regrets"]) == 2
    assert min(found["regrets"]) >= 0
    assert method in regret.table([found])


@pytest.mark.slow
def test_molecules_are_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    numbers, positions = rng.choice([0, 1, 6], (40, 4)), 2 * rng.normal(size=(40, 4, 3))
    np.savez(
        tmp_path / "qm7.npz", numbers=numbers, positions=positions, energy=numbers.sum(1) + 0.1 * rng.normal(size=40)
    )
    monkeypatch.setenv("ORBITGP_MOLECULES", str(tmp_path))
    monkeypatch.setattr(molecules, "FEW", 20)
    record = molecules.Molecules("folds", "atoms", 30, steps=2, refinements=1).run()
    assert record["train"] == 30
    assert record["metrics"]["tested"] == 8
    assert "folds 0 | atoms | 30" in molecules.table([record])
    assert list(molecules.check([record])) == ["QM7, five folds: at most 3.0 kcal/mol"]
    assert molecules.Molecules("choice", "Coulomb matrix", 20, steps=2).run()["evidence"]["exact"]
