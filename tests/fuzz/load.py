"""Load: a million rows to predict, many tiny steps, and many runs side by side, each with the memory that it took.

python -m tests.fuzz.load predict --rows 1000000
python -m tests.fuzz.load steps --steps 100000
python -m tests.fuzz.load runs --runs 8
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.covariance import Stationary
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import GaussianNoise
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.trainer import Trainer

MB = 2**20


def resident() -> float:
    """Megabytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MB


def predict(rows: int) -> dict[str, float]:
    """Predict so many rows: megabytes at the peak, beyond those after a first prediction of a quarter of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    options = TrainingOptions(num_predict_samples=8)
    model = InvariantGPRegressor(
        GaussianNoise(), num_inducing=20, num_samples=4, max_steps=3, training=options, random_state=0
    )
    model.fit(X, X[:, 0])
    new = rng.normal(size=(rows, 3))
    model.predict(new[: rows // 4], return_std=True)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter()
    mean, std = model.predict(new, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": rows, "seconds": time.perf_counter() - start, "more_mb": peak - before}


def steps(count: int) -> dict[str, float]:
    """So many tiny steps: megabytes gained over the last nine tenths of them, and whether resuming half way ends the
    same."""
    whole = _trainer(count)
    middle: Any = None
    start, early = time.perf_counter(), 0.0
    while whole.fraction() < 1.0:
        whole.stochastic.step()
        if whole.stochastic.steps % max(1, count // 100) == 0:
            whole.stochastic.record()
        if whole.stochastic.steps == max(1, count // 10):
            early = resident()
        if whole.stochastic.steps == count // 2:
            middle = deepcopy(whole.state_dict())
    gained, seconds = resident() - early, time.perf_counter() - start
    again = _trainer(count)
    again.load_state_dict(middle)
    while again.fraction() < 1.0:
        again.stochastic.step()
        if again.stochastic.steps % max(1, count // 100) == 0:
            again.stochastic.record()
    same = all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True))
    return {"steps": count, "seconds": seconds, "gained_mb": gained, "resumed_the_same": float(same)}


def _trainer(count: int) -> Trainer:
    from gpytorch.kernels import RBFKernel, ScaleKernel

    torch.manual_seed(0)
    x = torch.randn(8, 1, dtype=torch.float64)
    model = InvariantGP(ScaleKernel(RBFKernel()), GaussianNoise().double(), x[:3].clone())
    assert isinstance(model.covariance, Stationary)
    settings = TrainerSettings(max_steps=count, num_samples=2, batch_size=4, start_rows=0)
    return Trainer(model, Gaussian(), x, torch.sin(x), settings)


def runs(count: int) -> dict[str, float]:
    """So many ``orbitgp learn`` at the same time in one folder: each has a run folder of its own, and all succeed."""
    words = [
        "learn",
        "data.npz",
        "-o",
        "flip",
        "--no-baseline",
        "-m",
        "4",
        "--num-samples",
        "4",
        "--max-steps",
        "6",
        "--quiet",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        np.savez(Path(folder) / "data.npz", x=rng.random((16, 4, 4)), y=np.arange(16) % 2)
        start = time.perf_counter()
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "orbitgp", *words], cwd=folder, env=environment, stdout=subprocess.DEVNULL
            )
            for _ in range(count)
        ]
        codes = [process.wait() for process in processes]
        finished = len(list((Path(folder) / "runs").glob("*/result.json")))
    return {"runs": count, "succeeded": codes.count(0), "folders": finished, "seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.load")
    parser.add_argument("what", choices=["predict", "steps", "runs"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    jobs = {
        "predict": lambda: predict(given.rows),
        "steps": lambda: steps(given.steps),
        "runs": lambda: runs(given.runs),
    }
    print({name: round(value, 1) for name, value in jobs[given.what]().items()})


if __name__ == "__main__":
    main()
