"""Where the time of a step goes: operators by their own time, and whether the host ever waits for the device."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.problem import Orbitgp, Shape, problem

STEPS = 5
SHOWN = 16


def profiled(shape: Shape, device: torch.device) -> dict[str, Any]:
    """Milliseconds and calls in one step of the operators (kernels, on a GPU) that take longest."""
    contestant = Orbitgp(shape, problem(shape, device))
    for _ in range(3):
        contestant.step()
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if cuda else [ProfilerActivity.CPU]
    with profile(activities=activities) as run:
        for _ in range(STEPS):
            contestant.step()
        if cuda:
            torch.cuda.synchronize(device)
    # On a GPU an operator and the kernels that it launches are both listed: the kernels count.
    events = [e for e in run.key_averages() if not cuda or e.device_type == torch.autograd.DeviceType.CUDA]
    times = {e.key: (e.self_device_time_total if cuda else e.self_cpu_time_total) / 1e3 / STEPS for e in events}
    counts = {e.key: e.count / STEPS for e in events}
    longest = sorted(times, key=lambda key: -times[key])
    return {
        "shape": str(shape),
        "milliseconds": sum(times.values()),
        "operators": [{"name": key, "milliseconds": times[key], "calls": counts[key]} for key in longest[:SHOWN]],
        "others": sum(times[key] for key in longest[SHOWN:]),
        "launches": sum(counts.values()),
        "waits": waits(contestant) if cuda else None,
    }


def waits(contestant: Orbitgp) -> list[str]:
    """Where a step makes the host wait for the device: none, one hopes."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            contestant.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sorted({f"{w.filename.rsplit('/', 1)[-1]}:{w.lineno} {w.message}" for w in caught if "synchron" in str(w.message)})
