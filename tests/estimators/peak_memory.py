"""Megabytes at the peak of one fit of so many rows on disk: ``python peak_memory.py FOLDER ROWS``."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.estimators import stored


def main(folder: Path, rows: int) -> None:
    torch.set_num_threads(1)
    stored.LOADED_BYTES = 0
    for number in range(rows // 50_000):
        np.save(folder / f"{number:03}.npy", np.random.default_rng(number).integers(256, size=(50_000, 500), dtype=np.uint8))
    options = TrainingOptions(posterior_rows=2_000, dtype="float32")
    model = InvariantGPRegressor(num_inducing=4, max_steps=20, batch_size=10, random_state=0, training=options)
    model.fit(folder, np.arange(rows) % 7.0)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
