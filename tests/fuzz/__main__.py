"""Run a harness over many seeds: ``python -m tests.fuzz problems --count 10000 --jobs 16``.

``problems`` are random small problems (``tests.fuzz.problems``), ``files`` hostile files, ``faults`` every call that
could fail in ``learn``, ``compare`` and ``predict``, and ``kills`` runs that are killed at random moments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.fuzz.campaign import run

COUNTS = {
    "problems": 10_000,
    "files": 80_000,
    "faults": None,
    "kills": 200,
}  # files: 10,000 of each kind; faults: all calls


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Random cases; prints each bad one.")
    parser.add_argument("harness", nargs="?", choices=COUNTS, default="problems")
    parser.add_argument("--count", type=int, default=None, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    count = given.count or COUNTS[given.harness]
    describe: Callable[[Any], str] = str
    if given.harness == "problems":
        from tests.fuzz.invariants import bad as harness
        from tests.fuzz.problems import random_problem

        describe = lambda seed: str(random_problem(seed))  # noqa: E731
    elif given.harness == "files":
        from tests.fuzz.hostile import bad_file as harness
    elif given.harness == "faults":
        from tests.fuzz.faults import COMMANDS, number_of_faults
        from tests.fuzz.faults import bad_fault as harness

        count = count or sum(number_of_faults(command) for command in COMMANDS)
    else:
        from tests.fuzz.faults import bad_kill as harness
    seeds = range(given.first, given.first + count)
    return 1 if run(harness, seeds, given.jobs, describe) else 0


if __name__ == "__main__":
    sys.exit(main())
