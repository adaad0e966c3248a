"""Clocks: tasks are timed in turn, round after round, so that whatever else the machine does slows all of them alike.

Ratios are taken within a round, and their median over the rounds counts. Times are the smallest of all rounds.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import torch

Task = Callable[[], object]
Rounds = dict[str, list[float]]  # seconds of each task in each round


def timed(task: Task, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a call that follows another of the same, as in training. On CUDA the mean of five, by events on the
    device."""
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        begin.record()
        for _ in range(5):
            task()
        end.record()
        torch.cuda.synchronize(device)
        return begin.elapsed_time(end) / 5e3
    task()
    start = clock()
    task()
    return clock() - start


def interleaved(
    tasks: Mapping[str, Task], device: torch.device, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Rounds:
    """Every task once to warm up, then rounds of all tasks in turn: at least three, and for about ``seconds``."""
    for _ in range(3 if device.type == "cuda" else 1):
        for task in tasks.values():
            task()
    rounds: Rounds = {name: [] for name in tasks}
    start = time.perf_counter()
    while len(next(iter(rounds.values()))) < 3 or time.perf_counter() - start < seconds:
        for name, task in tasks.items():
            rounds[name].append(timed(task, device, clock))
    return rounds


def best(rounds: Rounds) -> dict[str, float]:
    """The smallest time of each task in milliseconds."""
    return {name: 1e3 * min(times) for name, times in rounds.items()}


def ratio(rounds: Rounds, task: str, parts: Sequence[str]) -> dict[str, float]:
    """One task against the sum of others: the median of the ratios within a round, and the ratio of the smallest
    times."""
    sums = [sum(times) for times in zip(*(rounds[part] for part in parts), strict=True)]
    paired = median(a / b for a, b in zip(rounds[task], sums, strict=True))
    return {
        "median": round(paired, 3),
        "of_minima": round(min(rounds[task]) / sum(min(rounds[part]) for part in parts), 3),
    }


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of seconds ~ size^p between the smallest and the largest size, by least squares."""
    u, v = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    mu, mv = sum(u) / len(u), sum(v) / len(v)
    return sum((a - mu) * (b - mv) for a, b in zip(u, v, strict=True)) / sum((a - mu) ** 2 for a in u)


def peak_memory(arguments: Sequence[str]) -> float:
    """Megabytes at the peak of ``python -m benchmarks`` with these arguments, alone in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return float(done.stdout.split()[-1])


def forget_peak_memory() -> None:
    """Let the peak begin at what this process uses now (on Linux; elsewhere there is no peak to read)."""
    counters = Path("/proc/self/clear_refs")
    if counters.exists():
        counters.write_text("5")


def own_peak_memory() -> float:
    """Megabytes of this process at its peak so far."""
    status = Path("/proc/self/status")
    if not status.exists():
        return math.nan
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) * 1024 / 1e6


def device_peak_memory(task: Task, device: torch.device) -> float:
    """Megabytes that a task adds to what is allocated on a CUDA device, at its peak."""
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    task()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 1e6
