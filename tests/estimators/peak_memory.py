"""Megabytes at the peak after a fit of few rows on disk and after one of many: ``python peak_memory.py FOLDER ROWS ROWS``."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.estimators import stored


def peak(folder: Path, rows: int) -> float:
    for number in range(rows // 50_000):
        np.save(folder / f"{number:03}.npy", np.random.default_rng(number).integers(256, size=(50_000, 500), dtype=np.uint8))
    options = TrainingOptions(posterior_rows=2_000, dtype="float32")
    model = InvariantGPRegressor(num_inducing=4, max_steps=20, batch_size=10, random_state=0, training=options)
    model.fit(folder, np.arange(rows) % 7.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    stored.LOADED_BYTES = 0
    print(*(peak(Path(sys.argv[1]), int(rows)) for rows in sys.argv[2:]))  # noqa: T201
