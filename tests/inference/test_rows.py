"""Rows of data in memory: which of them a batch has."""

from __future__ import annotations

import torch

from orbitgp.inference.rows import Minibatches


def test_rows_in_memory_are_drawn_one_by_one():
    """200 of 10,000 rows have four neighbours among them on average; of rows that lie together, a hundred."""
    rows = Minibatches(torch.zeros(10_000, 1), torch.Generator().manual_seed(0)).take(200)
    assert len(rows.unique()) == 200
    assert int((rows.sort().values.diff() == 1).sum()) < 20
