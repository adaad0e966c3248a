"""Every experiment in reduced form, on two cores in minutes: do the directions of all claims hold?

Numbers at this size are not those of the paper: the claims are about which model has more evidence, and which less
error. MNIST is downloaded unless ``ORBITGP_DATA`` says where it is.

``python -m experiments reproduce-small`` (or ``make reproduce-small``) writes records and pictures to
out/reproduce-small/, prints a line for each claim, and exits with 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from experiments.harness import Claims

EXPERIMENTS = (
    "toy",
    "exact",
    "exact_evidence",
    "rotated_digits",
    "deformations",
    "odd_even",
    "mnist",
    "rotated_mnist",
    "small_data",
    "augmentation",
)


def run(name: str, out: Path, jobs: int) -> Claims:
    """One experiment at its small size."""
    claims: Claims = import_module(f"experiments.{name}").EXPERIMENT.main(
        ["--out", str(out), "--quick", "--jobs", str(jobs)]
    )
    return claims


def main(arguments: list[str] | None = None) -> None:
    """Run all, say what holds."""
    parser = argparse.ArgumentParser(prog="python -m experiments reproduce-small", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/reproduce-small"), help="folder for records and pictures")
    parser.add_argument("--jobs", type=int, default=2, help="models to train at a time")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS, help="some of the experiments")
    options = parser.parse_args(arguments)
    failed = []
    for name in options.only:
        print(f"\n== {name}", flush=True)
        begin = time.perf_counter()
        claims = run(name, options.out, options.jobs)
        failed += [f"{name}: {claim}" for claim, holds in claims.items() if not holds]
        print(f"({time.perf_counter() - begin:.0f} s)", flush=True)
    print(f"\n{'All claims hold.' if not failed else 'These do not hold:'}")
    for claim in failed:
        print(claim)
    if failed:
        sys.exit(1)
