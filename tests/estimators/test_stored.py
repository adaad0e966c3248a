"""Inputs on disk give what the same inputs in memory give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.estimators import data as estimator_data
from orbitgp.inference.rows import Minibatches, StoredRows
from orbitgp.orbits import Rotation
from tests import new_process
from tests.estimators import peak_memory

pytestmark = pytest.mark.usefixtures("one_start")

ROWS = 90


class Chunked:
    """What HDF5 arrays have in common: a shape, chunks, and rows by increasing numbers."""

    chunks = (10, 8, 8)

    def __init__(self, x: np.ndarray) -> None:
        self.x, self.shape = x, x.shape

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        assert (np.diff(rows) > 0).all()
        return self.x[rows]


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    y = generator.integers(3, size=ROWS)
    return (generator.random((ROWS, 8, 8)) * 80 + 80 * y[:, None, None]).astype(np.uint8), y


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator_data, "LOADED_BYTES", 0)


def on_disk(kind: str, x: np.ndarray, folder: Path) -> Any:
    if kind == "chunked":
        return Chunked(x)
    np.save(folder / "whole", x)
    return np.load(folder / "whole.npy", mmap_mode="r")


def classifier(**settings: Any) -> InvariantGPClassifier:
    options = TrainingOptions(start_rows=0)
    given = {
        "num_inducing": 20,
        "num_samples": 4,
        "max_steps": 10,
        "batch_size": 32,
        "random_state": 0,
        "training": options,
    }
    return InvariantGPClassifier(Rotation(20.0), **{**given, **settings})


@pytest.mark.parametrize("kind", ["memory map", "chunked"])
def test_learns_and_predicts(kind: str, data: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    x, y = data
    X = on_disk(kind, x, tmp_path)
    model = classifier().fit(X, y)
    assert model.inference_ == "sparse"
    assert model.score(x, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X), model.predict_proba(x), rtol=1e-6)
    assert np.isfinite(model.evidence_.value)


def test_the_time_of_a_pass_is_that_of_the_rows_that_it_sees(
    data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    monkeypatch.setattr("orbitgp.estimators.evidence.pass_seconds", lambda *given: rows.append(given[3]) or 2.0)
    classifier(training=TrainingOptions(posterior_rows=3)).fit(Chunked(data[0]), data[1])
    assert set(rows) == {9}


@pytest.mark.slow
def test_the_same_batches_give_the_same_model(
    data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = data
    monkeypatch.setattr("orbitgp.inference.rows.StoredRows.block", 1)
    models = [classifier(inference="sparse").fit(inputs, y) for inputs in (x, Chunked(x))]
    assert models[0].evidence_.value == pytest.approx(models[1].evidence_.value, rel=1e-6)


def test_batches_are_read_once_and_beforehand(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, known, late = data[0], [], []

    def read(rows: np.ndarray) -> np.ndarray:
        known.append(rows)
        return x[rows]

    rows = StoredRows(read, x.shape, torch.float32, torch.device("cpu"))
    batches = Minibatches(rows, torch.Generator().manual_seed(0))
    for _ in range(20):
        index = batches.take(30)
        late.append(index.numpy().tobytes() not in rows.coming)
        torch.testing.assert_close(rows[index], torch.from_numpy(x[index]).float())
        rows.prefetch(batches.upcoming(30))
    assert sum(late) == 1  # only the first
    assert len(known) <= 21
    for start in range(5):  # what nobody asks for is forgotten
        rows.prefetch(torch.arange(start, start + 3))
    assert len(rows.coming) <= 3


def test_small_arrays_are_loaded(data: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data
    monkeypatch.setattr(estimator_data, "LOADED_BYTES", 2**20)
    model = InvariantGPClassifier(max_steps=2).fit(Chunked(x[:30]), y[:30])
    assert model.inference_ == "exact"


def test_blocks_hold_every_row_once_and_are_mixed() -> None:
    rows = StoredRows(np.zeros((1000, 1)).__getitem__, (1000, 1), torch.float32, torch.device("cpu"))
    batches = Minibatches(rows, torch.Generator().manual_seed(0))
    epoch = torch.cat([batches.take(100) for _ in range(10)])
    assert sorted(epoch.tolist()) == list(range(1000))
    assert len(set((epoch[:100] // 64).tolist())) > 8


class TestBadInput:
    def test_exact(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        with pytest.raises(ValueError, match="needs all data in one place, but they stay on disk"):
            classifier(inference="exact", num_inducing=None, batch_size=None).fit(Chunked(data[0]), data[1])

    def test_nan(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        x = data[0].astype(np.float32)
        x[70, 3, 3] = np.nan
        with pytest.raises(ValueError, match="NaN or infinity in row 70"):
            classifier().fit(Chunked(x), data[1])

    def test_lengths(self, data: tuple[np.ndarray, np.ndarray]) -> None:
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            classifier().fit(Chunked(data[0]), data[1][:-1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    megabytes = []
    for rows in (
        50_000,
        200_000,
    ):  # each in a process of its own: a second fit would find memory that the first one left
        new_process.start(peak_memory.measure, tmp_path, tmp_path / "peak", rows).join(300)
        megabytes.append(float((tmp_path / "peak").read_text()))
    assert megabytes[1] - megabytes[0] < 37  # where the data grow by 75
