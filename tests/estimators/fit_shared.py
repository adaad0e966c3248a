"""What each process of a run does that several share: it takes its part of the digits.

The first one writes evidence and predictions of every case to a folder.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import torch.distributed as dist
from sklearn.datasets import load_digits

from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.orbits import Rotation

ROWS = 61
CASES = (("gaussian", False), ("gaussian", True), ("bernoulli", True), ("dirichlet", True))
OPTIONS = TrainingOptions(dtype="float64", posterior_rows=40, start_rows=0)


def data(likelihood: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(return_X_y=True)
    labels = labels > 4 if likelihood == "bernoulli" else labels
    return images[:ROWS].reshape(-1, 8, 8) / 16, labels[:ROWS]


def estimator(likelihood: str, orbit: bool, steps: int) -> InvariantGPClassifier:
    settings = {"num_inducing": 15, "num_samples": 4, "max_steps": steps, "batch_size": 20, "random_state": 0}
    return InvariantGPClassifier(
        Rotation(20.0) if orbit else None, likelihood=likelihood, inference="sparse", training=OPTIONS, **settings
    )


def main(folder: Path, steps: int, kill_at: int | None = None) -> None:
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    own = np.array_split(np.arange(ROWS), world)[rank]

    def kill(record: dict[str, float]) -> None:
        if record["step"] == kill_at and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    found = {}
    for likelihood, orbit in CASES if kill_at is None else CASES[:1]:
        x, y = data(likelihood)
        model = estimator(likelihood, orbit, steps)
        checkpoint = None if kill_at is None else folder / f"{likelihood}-{orbit}.checkpoint"
        resume = checkpoint is not None and checkpoint.exists()
        model.fit(x[own], y[own], checkpoint=checkpoint, checkpoint_every=0.0, callback=kill, resume=resume)
        found[f"{likelihood} {orbit} evidence"] = np.array(model.evidence_.value)
        found[f"{likelihood} {orbit} probabilities"] = model.predict_proba(x[:10])
    if rank == 0:
        np.savez(folder / f"{world}.npz", **found)
