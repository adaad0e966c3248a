"""Megabytes at the peak of a fit of rows on disk, in a process that does nothing else."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.estimators import stored as estimator_data


def measure(folder: Path, result: Path, rows: int) -> None:
    """Write the peak of a fit of this number of rows to a file."""
    torch.set_num_threads(1)
    estimator_data.LOADED_BYTES = 0
    for number in range(rows // 50_000):
        np.save(folder / f"{number:03}.npy", np.random.default_rng(number).integers(256, size=(50_000, 500), dtype=np.uint8))
    options = TrainingOptions(posterior_rows=2_000, dtype="float32")
    model = InvariantGPRegressor(num_inducing=4, max_steps=20, batch_size=10, random_state=0, training=options)
    model.fit(folder, np.arange(rows) % 7.0)
    result.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
