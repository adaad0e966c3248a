"""Where the time of a step goes: by stage on a CPU, by kernel on a GPU, and whether the host ever waits for the
device."""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.problem import Orbitgp, Shape, problem
from orbitgp.kernels.radial import Exponents

STAGES = {"distances in k_fu, k_ff and Kuu": [Exponents]}
REST = "the rest: draws, interpolation, Cholesky and solves, moments, covariance of q(u), bound, autograd"
SHOWN = 16


def profiled(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds in one step: of stages on a CPU, of the kernels that take longest on a GPU."""
    contestant = Orbitgp(shape, problem(shape, args.device))
    contestant.step()
    if args.device.type == "cuda":
        return {"shape": str(shape), **_kernels(contestant, args.device), "waits": waits(contestant)}
    runs = [_stages(contestant, args.clock) for _ in range(3)]
    return {"shape": str(shape), "parts": {name: min(run[name] for run in runs) for name in runs[0]}}


def _stages(contestant: Orbitgp, clock: Callable[[], float]) -> dict[str, float]:
    times: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = clock()
        yield
        times[name] += 1e3 * (clock() - start)

    def watched(function: Callable[..., Any], name: str) -> staticmethod[..., Any]:
        def call(*inputs: Any) -> Any:
            with timed(name):
                return function(*inputs)

        return staticmethod(call)

    with ExitStack() as stack:
        for name, owner, way in (
            (n, o, w) for n, owners in STAGES.items() for o in owners for w in ("forward", "backward")
        ):
            stack.enter_context(patch.object(owner, way, watched(getattr(owner, way), f"{name}, {way}")))
        with timed(REST):
            contestant.step()
    times[REST] -= sum(time for name, time in times.items() if name != REST)
    return dict(sorted(times.items(), key=lambda item: (item[0] == REST, -item[1])))


def _kernels(contestant: Orbitgp, device: torch.device, steps: int = 5) -> dict[str, Any]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as run:
        for _ in range(steps):
            contestant.step()
        torch.cuda.synchronize(device)
    # An operator and the kernels that it launches are both listed: the kernels count.
    events = [e for e in run.key_averages() if e.device_type.name == "CUDA"]
    times = {e.key: e.self_device_time_total / 1e3 / steps for e in events}
    longest = sorted(times, key=lambda key: -times[key])
    parts = {key: times[key] for key in longest[:SHOWN]}
    parts["all others"] = sum(times[key] for key in longest[SHOWN:])
    return {"parts": parts, "launches": sum(e.count for e in events) / steps}


def waits(contestant: Orbitgp) -> list[str]:
    """Where a step makes the host wait for the device: none, one hopes."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            contestant.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sorted(
        {f"{w.filename.rsplit('/', 1)[-1]}:{w.lineno} {w.message}" for w in caught if "synchron" in str(w.message)}
    )
