"""Do the same data end at the same evidence? With other threads, rows in another order, and inputs changed a little they must.

Nothing of this changes the problem. So evidences must agree within one nat, or within the errors that they state. The data are
the first embedded digits with eight orbits, and the generated movements with two.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from experiments.certainty import Record, keep
from orbitgp import InvariantGPClassifier
from orbitgp.datasets import digits, movements
from orbitgp.report.summary import provenance

IMAGES = ("rotation", "translation", "scale", "shear", "affine", "deformation", "thickness", "noise")
SIGNALS = ("timeshift(interval=0.02, unit='s')", "timewarp(interval=0.02, unit='s')")
VARIANTS = ("one thread", "two threads", *(f"rows {i}" for i in range(1, 5)), *(f"inputs {i}" for i in range(1, 5)))
CHANGE = 1e-6  # standard deviation of what is added to inputs, whose values lie between 0 and 1
TOLERANCE = 1.0  # nats


def solve(orbit: str, rows: int, variant: str) -> Record:
    """One fit."""
    data = movements() if orbit in SIGNALS else digits()
    x, y = data.x_train[:rows], data.y_train[:rows]
    kind, _, number = variant.partition(" ")
    rng = np.random.default_rng(int(number) if number.isdigit() else 0)
    order = rng.permutation(len(x)) if kind == "rows" else np.arange(len(x))
    x, y = x[order], y[order]
    if kind == "inputs":
        x = x + CHANGE * rng.normal(size=x.shape)
    torch.set_num_threads(2 if kind == "two" else 1)
    start = time.process_time()
    model = InvariantGPClassifier(orbit, random_state=0).fit(x, y)
    found = model.evidence_
    return {
        "orbit": orbit, "rows": len(x), "variant": variant, "value": round(found.value, 3), "stderr": round(found.stderr, 3),
        "draws": found.num_samples, "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def agrees(records: Sequence[Record]) -> bool:
    """Whether all evidences of one problem agree within one nat, or within two errors of their difference."""
    return all(
        abs(one["value"] - other["value"]) <= max(TOLERANCE, 2 * np.hypot(one["stderr"], other["stderr"]))
        for one, other in product(records, records)
    )


def summary(records: Sequence[Record]) -> str:
    """For each problem: the range of its evidence, the largest error, and whether all agree."""
    lines = ["rows  orbit" + " " * 31 + "fits  lowest to highest        error  draws     agree"]
    for rows, orbit in sorted({(record["rows"], record["orbit"]) for record in records}):
        some = [record for record in records if (record["rows"], record["orbit"]) == (rows, orbit)]
        values, draws = [record["value"] for record in some], sorted({record["draws"] or 0 for record in some})
        ends, error = f"{min(values):,.1f} to {max(values):,.1f}", max(record["stderr"] for record in some)
        counts = ", ".join(map(str, draws))
        lines.append(f"{rows:<4}  {orbit:<35} {len(some):<4}  {ends:<23}  {error:<5.2f}  {counts:<8}  {agrees(some)}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="stability", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, nargs="+", default=[100])
    parser.add_argument("--orbits", nargs="+", default=[*IMAGES, *SIGNALS])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="fits side by side")
    parser.add_argument("--out", type=Path, default=None, help="a folder for stability.jsonl")
    options = parser.parse_args(arguments)
    records, made_by = [], provenance("cpu")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        problems = [(orbit, rows) for orbit in options.orbits for rows in options.rows]
        futures = [pool.submit(solve, *problem, variant) for problem in problems for variant in VARIANTS]
        for future in as_completed(futures):
            records.append({**future.result(), **made_by})
            keep(records[-1], options.out, "stability")
    print(summary(records))


if __name__ == "__main__":
    main()
