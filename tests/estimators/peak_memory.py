"""Megabytes at the peak of a fit of rows on disk, in a process that does nothing else."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.estimators import data as estimator_data


class Peak(threading.Thread):
    """The most memory of this process that is no page of a file, which the system may take back."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.megabytes, self.ended = 0.0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.005):
            found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
            self.megabytes = max(self.megabytes, int(found[1]) / 1024 if found else 0.0)


def measure(folder: Path, result: Path, rows: int) -> None:
    """Write the peak of a fit of this number of rows to a file."""
    torch.set_num_threads(1)
    estimator_data.LOADED_BYTES = 0
    path = folder / f"{rows}"
    with path.open("wb") as file:
        for part in range(rows // 50_000):
            file.write(np.random.default_rng(part).integers(256, size=(50_000, 500), dtype=np.uint8))
    options = TrainingOptions(posterior_rows=2_000, dtype="float32")
    model = InvariantGPRegressor(num_inducing=4, max_steps=20, batch_size=10, random_state=0, training=options)
    peak = Peak()
    peak.start()
    model.fit(np.memmap(path, np.uint8, "r", shape=(rows, 500)), np.arange(rows) % 7.0)
    peak.ended.set()
    result.write_text(str(peak.megabytes))
