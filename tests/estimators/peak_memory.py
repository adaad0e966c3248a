"""Megabytes at the peak after a fit of few rows on disk and after one of many, in a process that does nothing else."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.estimators import data as estimator_data


def peak(folder: Path, rows: int) -> float:
    for number in range(rows // 50_000):
        np.save(folder / f"{number:03}.npy", np.random.default_rng(number).integers(256, size=(50_000, 500), dtype=np.uint8))
    options = TrainingOptions(posterior_rows=2_000, dtype="float32")
    model = InvariantGPRegressor(num_inducing=4, max_steps=20, batch_size=10, random_state=0, training=options)
    model.fit(folder, np.arange(rows) % 7.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, result: Path, *numbers_of_rows: int) -> None:
    """Write the peaks to a file."""
    torch.set_num_threads(1)
    estimator_data.LOADED_BYTES = 0
    result.write_text(" ".join(str(peak(folder, rows)) for rows in numbers_of_rows))
