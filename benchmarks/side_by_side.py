"""Small models on one device: one after the other, against several worker processes side by side.

    python -m benchmarks.side_by_side --device cuda --models 24 --jobs 1 2 4 8

A worker process that is there already keeps its context on a GPU, so each number of jobs is timed twice.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from orbitgp import InvariantGPClassifier
from orbitgp.comparison.parallel import Job, train_all
from orbitgp.datasets import digits
from orbitgp.orbits import Rotation


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description="Many small models on one device.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--num-inducing", type=int, default=200)
    args = parser.parse_args()
    data = digits()
    settings = {"inference": "sparse", "num_samples": 32, "device": args.device}
    settings |= {"num_inducing": args.num_inducing, "max_steps": args.max_steps}
    jobs = [Job("rotation", Rotation(20.0), seed, InvariantGPClassifier, settings) for seed in range(args.models)]
    evidence = None
    for n_jobs in args.jobs:
        for what in ("first", "warm"):
            begin = time.perf_counter()
            found = np.array([trained.evidence for trained in train_all(jobs, data.x_train, data.y_train, n_jobs)])
            seconds = time.perf_counter() - begin
            evidence = found if evidence is None else evidence
            apart = np.abs(found / evidence - 1).max()
            print(
                f"{n_jobs} at a time, {what}: {seconds:.1f} s for {args.models} models; evidence apart {apart:.1e}", flush=True
            )


if __name__ == "__main__":
    main()
