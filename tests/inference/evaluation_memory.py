"""Megabytes that an evaluation of the evidence takes, and the estimate. To be measured in a process that does nothing
else."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from orbitgp.estimators.initialise import initial_kernel
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits.parse import make_orbit
from orbitgp.planning.cost import workload

SAMPLES = 32


def peak() -> float:
    """Of this process since the last reset. That of getrusage would include the process that has started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def model(rows: int, side: int, orbit: str) -> ExactGP:
    x = torch.rand(rows, side, side)
    return ExactGP(initial_kernel(None, x, 1.0, torch.Generator()), make_orbit(orbit), x, num_samples=SAMPLES)


def measure(rows: int, side: int, orbit: str, result: Path) -> None:
    """Write both numbers to a file."""
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(
        -3, 2**20
    )  # M_MMAP_THRESHOLD: large blocks go back at once, and no gaps between them count
    likelihood = Gaussian(1, 0.1)
    y = torch.randn(max(rows, 5), 1, dtype=torch.float64)
    model(5, 8, orbit).evidence_with_gradient(likelihood, y[:5])  # libraries have their own memory
    measured = model(rows, side, orbit)
    reset_peak()
    before = peak()
    measured.evidence_with_gradient(likelihood, y[:rows])
    estimate = workload(measured, likelihood, SAMPLES).evaluation(rows).bytes / 2**20
    result.write_text(f"{peak() - before} {estimate}")
