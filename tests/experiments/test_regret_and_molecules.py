"""Functions of the tasks have their symmetries, what is refuted is dropped, and molecules are read and learned."""

from __future__ import annotations

import time
from multiprocessing import dummy
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
        assert regret.choose(task, "found", x, f(x), regret.Search(task)).group == kept


def test_an_image_is_observed_where_the_next_smaller_group_knows_least() -> None:
    task = regret.TASKS["cyclic, 3-D"]
    x = torch.tensor([[0.2, 0.2, 0.2], [0.1, 0.5, 0.9], [0.4, 0.4, 0.4], [0.7, 0.7, 0.7]])
    chosen = regret.choose(task, "found", x, torch.tensor([0.5, 0.1, 0.2, 0.3]), regret.Search(task))
    assert chosen.group == "permutations(3)"
    (probe,) = chosen.probe.tolist()
    assert sorted(probe) == [0.1, 0.5, 0.9]
    assert probe not in [[0.1, 0.5, 0.9], [0.5, 0.9, 0.1], [0.9, 0.1, 0.5]]  # which the circle knows


@pytest.mark.slow
def test_a_false_symmetry_that_is_handed_over_is_given_up() -> None:
    task = regret.TASKS["false, 3-D"]
    f, _ = regret.function(task, seed=1)
    x = 0.3 + 0.4 * torch.rand(60, 3)
    search = regret.Search(task, handed=True)
    assert set(search.groups) == {"none", "permutations(3)"}
    assert regret.choose(task, "handed", x[:2], f(x[:2]), search).group == "permutations(3)"
    assert regret.choose(task, "handed", x, f(x), search).group == "none"
    assert search.generators == task.generators


@pytest.mark.slow
def test_records_are_written_and_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multiprocessing.get_context", lambda method: dummy)  # a thread, which imports nothing
    arguments = ["--out", str(tmp_path), "--seeds", "1", "--steps", "2", "--tasks", "false, 3-D"]
    regret.main(arguments)
    assert len((tmp_path / "regret.jsonl").read_text().splitlines()) == 4
    regret.main(arguments)
    said = capsys.readouterr().out
    assert "4 of 4 runs are recorded" in said
    assert "| handed | 1 | 2 |" in said


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
    record = molecules.Molecules("choice", "Coulomb matrix, noisy sort", 20, steps=2).run()
    assert record["evidence"]["exact"]
    assert record["learned"]["noise of norms"] > 0
