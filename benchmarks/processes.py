"""One model on two processes of one thread each, against one process with two threads: time and traffic of a step.

``python -m benchmarks.processes INDUCING`` is one process of such a run; torchrun may start several of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.problem import OUTPUTS, Shape, problem
from orbitgp import InvariantGPRegressor, TrainingOptions
from orbitgp.inference import processes
from orbitgp.orbits import Rotation

ROWS, SAMPLES, BATCH, STEPS = 2000, 20, 200, 24
INDUCING = (100, 200, 400)


def shared() -> list[dict[str, Any]]:
    """Milliseconds and all-reduced numbers of a step, for each number of inducing points."""
    found = []
    for inducing in INDUCING:
        alone, together = _run(1, 2, inducing), _run(2, 1, inducing)
        assert abs(alone["bound"] - together["bound"]) < 1e-3 * abs(alone["bound"])
        parameters = together["parameters"]
        found.append(
            {
                "inducing": inducing,
                "milliseconds": {
                    "one process, two threads": alone["ms"],
                    "two processes, one thread each": together["ms"],
                },
                "efficiency": round(alone["ms"] / together["ms"], 2),
                "processor_milliseconds": [alone["cpu"], together["cpu"]],
                "reduced": together["reduced"],
                "formula": 2 * inducing**2 + inducing * OUTPUTS + parameters,
                "parameters": parameters,
            }
        )
    return found


def _run(count: int, threads: int, inducing: int) -> dict[str, Any]:
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
    command = [sys.executable, *start, "-m", "benchmarks.processes", str(inducing)]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(inducing: int) -> None:
    count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if count > 1:
        dist.init_process_group("gloo")
    data = problem(Shape(ROWS, SAMPLES, inducing), torch.device("cpu"))
    own = slice(ROWS * rank // count, ROWS * (rank + 1) // count)
    times, reduced = [], [0]
    all_reduce = processes.all_reduce

    def counted(tensors: Any) -> None:
        parts = list(tensors)
        reduced[0] += sum(part.numel() for part in parts)
        all_reduce(parts)

    processes.all_reduce = counted

    def record(_: Any) -> None:
        times.append((time.perf_counter(), reduced[0], time.process_time()))

    # A step is both: q(u) from 1,000 data, and a gradient from 200.
    options = TrainingOptions(start_rows=0, posterior_rows=1000)
    model = InvariantGPRegressor(
        Rotation(20.0),
        inference="sparse",
        num_inducing=inducing,
        num_samples=SAMPLES,
        batch_size=BATCH,
        max_steps=STEPS,
        random_state=0,
        training=options,
    )
    model.fit(data.x[own].numpy(), data.y[own].numpy(), callback=record)
    steps = [tuple(end - begin for begin, end in zip(*pair, strict=True)) for pair in pairwise(times[2:])]
    learned = sum(p.numel() for p in (*model.model_.parameters(), *model.likelihood_.parameters()) if p.requires_grad)
    seconds, numbers, busy = (median(step[i] for step in steps) for i in range(3))
    result = {"ms": round(1e3 * seconds, 1), "reduced": numbers, "cpu": round(1e3 * sum(processes.all_gather(busy)), 1)}
    result |= {"parameters": learned, "bound": model.history_[-1]["bound"]}
    if rank == 0:
        print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]))
