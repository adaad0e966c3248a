"""Small models on one device: one after the other, as one batch, and in several worker processes side by side.

    python -m benchmarks.side_by_side --device cuda --models 24 --jobs 1 2 4 8

A worker process that is there already keeps its context on a GPU, so each number of jobs is timed twice. Of the batch,
only the bare operations of a step are timed, on operands that are there already: what ``torch.vmap`` could gain at
best.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Task, interleaved, ratio
from orbitgp import InvariantGPClassifier
from orbitgp.comparison.parallel import Job, train_all
from orbitgp.datasets import digits
from orbitgp.orbits import Rotation

ROWS, SAMPLES, DIM = 512, 32, 64  # of a step


def bare_step(count: int, inducing: int, device: torch.device) -> Task:
    """The products, factorisations and solves of one step of so many models, as operations on one batch."""
    generator = torch.Generator(device).manual_seed(0)

    def rand(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.rand(count, *size, generator=generator, dtype=dtype, device=device)

    x, z, w = rand(ROWS * SAMPLES, DIM), rand(inducing, DIM), rand(ROWS * SAMPLES, inducing)
    a = rand(inducing, 2 * ROWS, dtype=torch.float64)
    gram = 0.5 * torch.eye(inducing, dtype=torch.float64, device=device) + 0.5

    def step() -> None:
        for result in (x @ z.mT, w @ z, w.mT @ x):
            result.exp_()
        factor = torch.linalg.cholesky(gram.expand(count, -1, -1))
        solved = torch.linalg.solve_triangular(factor, a, upper=False)
        torch.linalg.solve_triangular(factor.mT, solved, upper=True) @ solved.mT

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side", description="Many small models on one device."
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--inference", choices=["exact", "sparse"], default="sparse")
    parser.add_argument("--max-steps", type=int, default=400)
    parser.add_argument("--num-inducing", type=int, default=200)
    args = parser.parse_args()
    device = torch.device(args.device)
    tasks = {str(count): bare_step(count, args.num_inducing, device) for count in (1, args.models)}
    share = ratio(interleaved(tasks, device, seconds=2.0), str(args.models), ["1"])["median"] / args.models
    print(
        f"bare steps of {args.models} models: a batch takes {share:.2f} times as long as one after the other",
        flush=True,
    )
    data = digits()
    settings = {"inference": args.inference, "device": args.device, "num_samples": 32}
    if args.inference == "sparse":
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
                f"{n_jobs} at a time, {what}: {seconds:.1f} s for {args.models} models; evidence apart {apart:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
