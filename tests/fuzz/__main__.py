"""Run a harness over many seeds: ``python -m tests.fuzz --count 10000 --jobs 16``."""

from __future__ import annotations

import argparse
import os
import sys

from tests.fuzz.campaign import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random problems; prints each bad one.")
    parser.add_argument("--count", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()

    from tests.fuzz.invariants import bad
    from tests.fuzz.problems import random_problem

    seeds = range(given.first, given.first + given.count)
    return 1 if run(bad, seeds, given.jobs, lambda seed: str(random_problem(seed))) else 0


if __name__ == "__main__":
    sys.exit(main())
