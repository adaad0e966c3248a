"""A device without memory, simulated: a kernel that refuses more than so many rows at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor
from orbitgp.inference import memory
from orbitgp.inference.memory import chunk_elements, in_smaller_chunks
from orbitgp.kernels.stationary import Stationary
from orbitgp.orbits import GaussianNoise


@pytest.fixture(autouse=True)
def chunks_as_they_are(monkeypatch):
    monkeypatch.setattr(memory, "_halved", 0)


@pytest.fixture
def few_rows(monkeypatch):
    """The kernel of more than four data does not fit. Chunks start with all data."""
    expectations, refused = Stationary.expectations, []

    def small(self, xa, z, pairing):
        if len(xa) > 4:
            refused.append(len(xa))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return expectations(self, xa, z, pairing)

    monkeypatch.setattr(Stationary, "expectations", small)
    return refused


@pytest.mark.parametrize("inference", ["exact", "sparse"])
def test_predictions_go_on_in_smaller_chunks(inference, monkeypatch, request, caplog):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(4, 2)), rng.normal(size=(40, 2))
    model = InvariantGPRegressor(GaussianNoise(), inference=inference, max_steps=2, num_samples=4, random_state=0)
    expected = model.fit(X, X[:, 0]).predict(new)
    refused = request.getfixturevalue("few_rows")
    small = 40 * 128 * 1024
    monkeypatch.setattr("orbitgp.inference.model.chunk_elements", lambda device: small >> memory._halved)
    for name in ("exact", "orbit_gram"):
        monkeypatch.setattr(f"orbitgp.inference.{name}.chunk_elements", lambda device: 40 * 64 >> memory._halved)
    with caplog.at_level("WARNING", "orbitgp"):
        found = model.predict(new)
    assert refused
    assert "memory ran out" in caplog.text
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_what_never_fits_is_an_error():
    attempts = []

    @in_smaller_chunks
    def too_large():
        attempts.append(chunk_elements(torch.device("cpu")))
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")

    with pytest.raises(RuntimeError, match="can't allocate"):
        too_large()
    assert attempts[0] == 2**24
    assert attempts[-1] == 2**16


def test_other_errors_are_not_repeated():
    attempts = []

    @in_smaller_chunks
    def wrong():
        attempts.append(1)
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        wrong()
    assert len(attempts) == 1
