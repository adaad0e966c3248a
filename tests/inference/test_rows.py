"""Rows of data in memory: which of them a batch has."""

from __future__ import annotations

import torch

from orbitgp.inference import rows
from orbitgp.inference.rows import Minibatches, spaced


def test_rows_in_memory_are_drawn_one_by_one():
    """200 of 10,000 rows have four neighbours among them on average; of rows that lie together, a hundred."""
    taken = Minibatches(torch.zeros(10_000, 1), torch.Generator().manual_seed(0)).take(200)
    assert len(taken.unique()) == 200
    assert int((taken.sort().values.diff() == 1).sum()) < 20


def test_spaced_rows_reach_from_the_first_to_the_last(monkeypatch):
    x = torch.arange(9.0)[:, None]
    assert spaced(x).flatten().tolist() == x.flatten().tolist()
    monkeypatch.setattr(rows, "_SPACED_ROWS", 3)
    assert spaced(x).flatten().tolist() == [0, 4, 8]
