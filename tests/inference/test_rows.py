"""Rows of data: which of them a batch has, and which a process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orbitgp.inference import processes, rows
from orbitgp.inference.rows import Minibatches, SharedRows, StoredRows, first, owned, spaced, spread


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


def test_what_is_on_disk_is_read_in_blocks() -> None:
    x = torch.zeros(3, 2)
    source = stored(x.numpy())
    assert [each.block > 1 for each in (SharedRows(x), source, SharedRows(source))] == [False, True, True]


def stored(x: np.ndarray) -> StoredRows:
    """Rows as a file gives them: sorted numbers without repetitions alone."""

    def read(index: np.ndarray) -> np.ndarray:
        assert (np.diff(index) > 0).all()
        return x[index]

    return StoredRows(read, x.shape, torch.float64, torch.device("cpu"))


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_stored_rows_come_in_any_order_and_as_often_as_asked(kind: str) -> None:
    x = np.random.default_rng(0).integers(0, 200, (9, 2, 3)).astype(kind)
    source, index = stored(x), torch.tensor([7, 2, 2, 8, 0])
    assert (len(source), source.ndim) == (9, 3)
    for _ in range(2):
        found = source[index]
        assert found.dtype == torch.float64
        np.testing.assert_array_equal(found.numpy(), x[index])
        source.prefetch(index)  # the second time it is read beforehand


def test_a_stored_row_that_is_not_finite_is_named() -> None:
    x = np.zeros((9, 2, 3))
    x[7, 1, 2] = np.nan
    assert float(stored(x)[torch.tensor([8, 0])].sum()) == 0.0
    with pytest.raises(ValueError, match="X contains NaN or infinity in row 7"):
        stored(x)[torch.tensor([8, 7, 0])]


def test_an_epoch_on_disk_has_each_row_once_and_pools_of_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_POOLED_BLOCKS", 4)
    count, source = 1000, stored(np.zeros((1000, 1)))
    batches = Minibatches(source, torch.Generator().manual_seed(0))
    taken = torch.cat([batches.take(100) for _ in range(20)])
    for epoch in taken.split(count):
        assert epoch.sort().values.tolist() == list(range(count))
    early = taken[: 3 * source.block]  # of four blocks, of which the last of all may be the short one
    assert len((early // source.block).unique()) == 4
    assert int((early.diff() == 1).sum()) < 20
    assert not torch.equal(taken[:count], taken[count:])


def test_the_spread_is_that_of_the_columns_and_never_zero() -> None:
    assert spread(torch.tensor([[0.0, 1.0], [2.0, 5.0]])) == pytest.approx(np.sqrt((1 + 4) / 2))
    assert spread(torch.ones(3, 2)) == 1.0


def test_the_first_rows_are_all_where_there_are_fewer() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    assert [first(x, count).tolist() for count in (2, 3, 9)] == [x[:2].tolist(), x.tolist(), x.tolist()]
