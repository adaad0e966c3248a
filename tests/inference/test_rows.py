"""Rows of data: which of them a batch has, and which a process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orbitgp.inference import processes, rows
from orbitgp.inference.rows import Minibatches, SharedRows, StoredRows, on_disk, owned, spaced


def test_rows_in_memory_are_drawn_one_by_one() -> None:
    """200 of 10,000 rows have four neighbours among them on average; of rows that lie together, a hundred."""
    taken = Minibatches(torch.zeros(10_000, 1), torch.Generator().manual_seed(0)).take(200)
    assert len(taken.unique()) == 200
    assert int((taken.sort().values.diff() == 1).sum()) < 20


def test_spaced_rows_reach_from_the_first_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(9.0)[:, None]
    assert spaced(x).flatten().tolist() == x.flatten().tolist()
    monkeypatch.setattr(rows, "_SPACED_ROWS", 3)
    assert spaced(x).flatten().tolist() == [0, 4, 8]


def test_each_process_holds_its_part_and_all_parts_are_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(7, 2, 3, dtype=torch.float64)
    parts, index = (x[:3], x[3:]), torch.tensor([6, 0, 3, 2, 2])
    monkeypatch.setattr(processes, "all_gather", lambda value: [(3, 1), (4, 1)])
    monkeypatch.setattr(processes, "all_reduce", lambda tensors: None)  # the sum is made below
    found = []
    for rank, own in ((0, [1, 3, 4]), (1, [0, 2])):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        shared = SharedRows(parts[rank])
        assert shared.shape == x.shape
        assert shared.own(index).tolist() == own
        assert torch.equal(shared[index[own]], x[index[own]])
        assert owned(shared, index).rows.tolist() == index[own].tolist()
        found.append(shared.fetch(index))
    assert torch.equal(found[0] + found[1], x[index])


def test_what_is_on_disk_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3, 2)
    stored = StoredRows(lambda rows: np.zeros((len(rows), 2)), (3, 2), torch.float64, torch.device("cpu"))
    assert [on_disk(x), on_disk(SharedRows(x)), on_disk(stored), on_disk(SharedRows(stored))] == [False, False, True, True]
