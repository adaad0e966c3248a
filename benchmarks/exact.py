"""Fits by exact evidence: against the operations that they cannot do without, and against scikit-learn.

    python -m benchmarks.exact [shifts digits tables ...] [--clock cpu --threads 1]

The floor of a fit is the time of its matrix products and factorisations alone, each at the speed that this machine
reaches for them: for every evaluation with a gradient four products between half of all pairs of samples, for every
other one of them, and the factorisation and inverse of the covariance in double precision. ``--clock cpu`` counts the
CPU time of the process, for machines that others use, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.datasets import digits
from orbitgp.inference.exact import ExactGP
from orbitgp.orbits import FiniteOrbit, Permutation, Rotation

Clock = Callable[[], float]


class Work:
    """Operations of a fit: in products of samples, and in factorisations; and how often the evidence was computed."""

    def __init__(self) -> None:
        self.products, self.algebra, self.evaluations = 0.0, 0.0, 0

    def count(self, model: ExactGP, products: int, algebra: float) -> None:
        orbit = model.orbit
        samples = orbit.size if isinstance(orbit, FiniteOrbit) else model.num_samples or 1
        self.products += products * model.x[0].numel() * len(model.x) ** 2 * model.vectors.pairs(samples)
        self.algebra += algebra * len(model.x) ** 3
        self.evaluations += products == 4

    def floor(self, clock: Clock, dim: int, double: bool) -> float:
        """Seconds, at the speed that products and factorisations have here."""
        dtype = torch.float64 if double else torch.float32
        left, right = torch.randn(4096, dim, dtype=dtype), torch.randn(dim, 4096, dtype=dtype)
        covariance = torch.eye(1000, dtype=torch.float64)
        return self.products * _seconds(lambda: left @ right, clock) / (2 * dim * 4096**2) + self.algebra * _seconds(
            lambda: torch.cholesky_inverse(torch.linalg.cholesky(covariance)), clock
        ) / (1000**3)


def _seconds(task: Callable[[], Any], clock: Clock) -> float:
    task()
    times = []
    for _ in range(5):
        begin = clock()
        task()
        times.append(clock() - begin)
    return min(times)


@contextmanager
def counted() -> Iterator[Work]:
    """Count what exact models compute meanwhile."""
    work = Work()
    with_gradient, without, other = ExactGP.evidence_with_gradient, ExactGP.condition, ExactGP.log_evidence

    def counting(method: Callable[..., Any], products: int, algebra: float) -> Callable[..., Any]:
        def call(model: ExactGP, *args: Any, **kwargs: Any) -> Any:
            work.count(model, products, algebra)
            return method(model, *args, **kwargs)

        return call

    with (
        patch.object(ExactGP, "evidence_with_gradient", counting(with_gradient, 4, 1.0)),
        patch.object(ExactGP, "condition", counting(without, 1, 1 / 3)),
        patch.object(ExactGP, "log_evidence", counting(other, 1, 1 / 3)),
    ):
        yield work


def against_floor(name: str, model: Any, x: np.ndarray, y: np.ndarray, clock: Clock) -> str:
    """One line: a fit, its floor, and their ratio."""
    begin = clock()
    with counted() as work:
        model.fit(x, y)
    seconds = clock() - begin
    floor = work.floor(clock, x[0].size, x.dtype == np.float64)
    said = f"{work.evaluations} gradients, {model.evidence_}, {model.orbit_.describe().to_dict()}"
    return f"{name}: {seconds:.1f} s, floor {floor:.1f} s, ratio {seconds / floor:.1f} ({said})"


def shifts(clock: Clock) -> str:
    """200 digits, padded to 12 x 12, and the nine shifts by up to a pixel."""
    x = np.pad(load_digits().images[:200] / 16, ((0, 0), (2, 2), (2, 2))).reshape(200, -1)
    pixels = np.arange(144).reshape(12, 12)
    nine = [np.roll(pixels, (i, j), (0, 1)).ravel().tolist() for i in (-1, 0, 1) for j in (-1, 0, 1)]
    model = InvariantGPClassifier(Permutation(nine), likelihood="gaussian", random_state=0)
    return against_floor("200 digits x 9 shifts", model, x, load_digits().target[:200], clock)


def rotations(clock: Clock) -> str:
    """1,347 digits with a learned rotation and the default likelihood."""
    data = digits()
    model = InvariantGPClassifier(Rotation(45.0), random_state=0)
    return against_floor("1,347 digits, learned rotation", model, data.x_train, data.y_train, clock)


def tables(clock: Clock) -> str:
    """Tables without an orbit, against scikit-learn with the same kernel and one start."""
    lines = []
    for load in (load_diabetes, load_breast_cancer, load_iris, load_wine):
        x, y = load(return_X_y=True)
        x = (x - x.mean(0)) / x.std(0)
        theirs: Any = GaussianProcessClassifier(ConstantKernel() * RBF(3.0))
        ours: Any = InvariantGPClassifier(random_state=0)
        if load is load_diabetes:
            theirs = GaussianProcessRegressor(ConstantKernel() * RBF(3.0) + WhiteKernel(), normalize_y=True)
            ours = InvariantGPRegressor(random_state=0)
        times = []
        for model in (ours, theirs):
            begin = clock()
            model.fit(x, y)
            times.append(clock() - begin)
        name = load.__name__.removeprefix("load_")
        lines.append(
            f"{name} {x.shape}: {times[0]:.2f} s, scikit-learn {times[1]:.2f} s, ratio {times[0] / times[1]:.1f}"
        )
    return "\n".join(lines)


PARTS = {"shifts": shifts, "tables": tables, "digits": rotations}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exact", description="What a fit by exact evidence costs."
    )
    parser.add_argument("parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.process_time if args.clock == "cpu" else time.perf_counter
    InvariantGPRegressor().fit(np.arange(8.0)[:, None], np.arange(8.0))  # imports, caches
    for part in args.parts:
        print(PARTS[part](clock), flush=True)


if __name__ == "__main__":
    main()
