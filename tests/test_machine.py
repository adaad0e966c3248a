"""Constant tables, and a device without memory: a kernel that refuses many rows at once, or a GPU that is nearly
full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions, machine
from orbitgp.kernels.covariance import Stationary
from orbitgp.machine import chunk_elements, constant, in_smaller_chunks
from orbitgp.orbits import GaussianNoise, Permutation
from orbitgp.planning.cost import Workload
from tests import new_process
from tests.inference import evaluation_memory


@pytest.fixture(autouse=True)
def chunks_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_halved", 0)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The kernel between more than four data, or sets of samples, and others does not fit. Chunks start with all
    data."""
    cross, refused = Stationary.cross, []

    def small(self: Any, xa: Any, xb: Any, *centre: Any) -> torch.Tensor:
        if len(xa) > 4:
            refused.append(len(xa))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return cross(self, xa, xb, *centre)

    monkeypatch.setattr(Stationary, "cross", small)
    return refused


@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_predictions_go_on_in_smaller_chunks(
    inference: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(4, 2)), rng.normal(size=(40, 2))
    model = InvariantGPRegressor(GaussianNoise(), inference=inference, max_steps=2, num_samples=4, random_state=0)
    expected = model.fit(X, X[:, 0]).predict(new)
    refused = request.getfixturevalue("few_rows")
    small = 40 * 128 * 1024
    monkeypatch.setattr("orbitgp.inference.model.chunk_elements", lambda device: small >> machine._halved)
    for name in ("exact", "exact_predictions", "orbit_gram"):
        monkeypatch.setattr(f"orbitgp.inference.{name}.chunk_elements", lambda device: 40 * 64 >> machine._halved)
    with caplog.at_level("WARNING", "orbitgp"):
        found = model.predict(new)
    assert refused
    assert "memory ran out" in caplog.text
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_what_never_fits_is_an_error() -> None:
    attempts = []

    @in_smaller_chunks
    def too_large() -> None:
        attempts.append(chunk_elements(torch.device("cpu")))
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")

    with pytest.raises(RuntimeError, match="can't allocate"):
        too_large()
    assert attempts[0] == 2**24
    assert attempts[-1] == 2**16


@pytest.mark.parametrize(
    "words", ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"]
)
def test_libraries_of_the_device_have_no_memory_either(words: str) -> None:
    attempts = []

    @in_smaller_chunks
    def works_twice_as_small() -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise RuntimeError(words)
        return chunk_elements(torch.device("cpu"))

    assert works_twice_as_small() == 2**23


SIZE = 64  # of the input, and of the orbit: circular shifts, which are enumerated, so chunks change only rounding


def regressor(device: str) -> InvariantGPRegressor:
    shifts = Permutation([[*range(1, SIZE), 0]], close=True)
    options = TrainingOptions(
        inducing_samples=1, num_predict_samples=SIZE, start_rows=0, dtype="float32", posterior_rows=10**6
    )
    return InvariantGPRegressor(
        shifts,
        num_inducing=512,
        batch_size=32,
        num_samples=SIZE,
        max_steps=3,
        training=options,
        device=device,
        random_state=0,
    )


def shifted_bumps(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    widths = rng.uniform(1, 8, rows)
    bumps = np.exp(-(((np.arange(SIZE) - SIZE / 2) / widths[:, None]) ** 2)) + 0.05 * rng.normal(size=(rows, SIZE))
    return bumps.astype(np.float32), np.log(widths)


@contextmanager
def full_device(left: int) -> Iterator[None]:
    """Within this block, so many bytes of the GPU are left."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - left, dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del ballast
        torch.cuda.empty_cache()


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Refits of q(u), the evidence and predictions are to take chunks of a 64th of the memory, and half of that is
    left."""
    chunk = 4 * chunk_elements(torch.device("cuda"))
    rows = chunk // (4 * SIZE * 512) + 1000  # more than one chunk
    X, y = shifted_bumps(rows)
    free = regressor("cuda").fit(X, y)
    expected = np.stack(free.predict(X, return_std=True))
    assert machine._halved == 0
    with full_device(max(chunk // 2, 200 * 2**20)), caplog.at_level("WARNING", "orbitgp"):
        found = np.stack(free.predict(X, return_std=True))
        assert "memory ran out: going on in chunks" in caplog.text
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * y.std())
        monkeypatch.setattr(machine, "_halved", 0)
        caplog.clear()
        full = regressor("cuda").fit(X, y)
        assert "memory ran out: going on in chunks" in caplog.text
        again = np.stack(full.predict(X, return_std=True))
    np.testing.assert_allclose(again, expected, rtol=0, atol=1e-2 * y.std())
    assert full.evidence_.value == pytest.approx(free.evidence_.value, abs=1e-3 * rows)


def test_other_errors_are_not_repeated() -> None:
    attempts = []

    @in_smaller_chunks
    def wrong() -> None:
        attempts.append(1)
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        wrong()
    assert len(attempts) == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs the peak of memory that Linux keeps")
@pytest.mark.parametrize(
    ("rows", "side", "orbit"),
    [(6, 200, "rotation"), (20, 96, "rotation"), (250, 16, "rotation"), (4, 150, "deformation")],
)
def test_the_estimate_covers_what_an_evaluation_takes(rows: int, side: int, orbit: str, tmp_path: Path) -> None:
    """Large images: copies of all samples. Many rows: blocks of the kernel. Deformations: a table of waves at all
    pixels."""
    process = new_process.start(evaluation_memory.measure, rows, side, orbit, tmp_path / "megabytes")
    process.join(300)
    taken, estimate = map(float, (tmp_path / "megabytes").read_text().split())
    assert 0.5 * estimate < taken < estimate


def test_more_draws_are_not_taken_than_fit_into_memory() -> None:
    work = Workload(32, 90_000, torch.device("cpu"))
    enough = 1e12
    assert work.most_samples(12, 12, 1e6, enough) == 128
    needed = replace(work, samples=64).evaluation(12).bytes
    assert work.most_samples(12, 12, 1e6, needed / 0.7 + 1) == 64
    assert work.most_samples(12, 12, 1e6, needed / 0.7 - 1) == 32


def test_made_once_for_each_precision() -> None:
    made = []

    @constant
    def table(size: Any) -> torch.Tensor:
        made.append(size)
        return torch.arange(size, dtype=torch.float64)

    assert table(3) is table(3)
    assert table(3).dtype == torch.float64
    single = table(3, dtype=torch.float32, device=torch.device("cpu"))
    assert single.dtype == torch.float32
    assert single is table(3, dtype=torch.float32, device=torch.device("cpu"))
    table(4)
    assert made == [3, 3, 4]


def test_what_is_made_in_inference_mode_can_be_differentiated_later() -> None:
    @constant
    def table() -> torch.Tensor:
        return torch.ones(3, dtype=torch.float64)

    with torch.inference_mode():
        table()
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (weight * table()).sum().backward()
    assert weight.grad is not None
