"""Many cases of one harness, on many processes: progress, each bad case with its seed, and the totals."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch is imported

Harness = Callable[[int], list[str]]  # from a seed to what is wrong, in sentences
SLOW = 20.0  # seconds, above which a case is named


def run(harness: Harness, seeds: Iterable[int], jobs: int, describe: Callable[[int], str] = str) -> list[int]:
    """Try all seeds, print what is bad, and return the bad seeds."""
    start, found, seeds = time.time(), [], list(seeds)
    with multiprocessing.get_context("spawn").Pool(jobs, _quiet) as pool:
        cases = ((harness, seed) for seed in seeds)
        for done, (seed, wrong, seconds) in enumerate(pool.imap_unordered(_one, cases, chunksize=4), 1):
            if wrong:
                found.append(seed)
                print(f"BAD {describe(seed)}\n    {'; '.join(wrong)}", flush=True)
            if seconds > SLOW:
                print(f"slow: seed {seed} took {seconds:.0f} s", flush=True)
            if done % max(1, len(seeds) // 20) == 0:
                print(f"{done} tried, {len(found)} bad, {time.time() - start:.0f} s", flush=True)
    print(f"tried {len(seeds)}, bad {len(found)} {sorted(found) or ''}", flush=True)
    return found


def _quiet() -> None:
    import torch

    torch.set_num_threads(1)


def _one(case: tuple[Harness, int]) -> tuple[int, list[str], float]:
    """A harness that fails is a bad case like any other, and does not end the campaign."""
    harness, seed = case
    start = time.time()
    try:
        wrong = harness(seed)
    except Exception as error:
        wrong = [f"the harness failed: {type(error).__name__}: {error}"]
    return seed, wrong, time.time() - start
