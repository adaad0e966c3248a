"""What each rule of the learner gains: every rule is left out in turn, and the same fits are made again.

    python -m experiments ablation --plan                    # how many fits, and CPU seconds, and no more
    python -m experiments ablation --jobs 15 --out FILE      # fifteen fits at a time, on one thread each
    python -m experiments ablation --cases "turned digits 100 affine" --rules neighbours doubts

A line of the table has the cases that lose or gain a nat without the rule (evidence of the infinite orbit; a question
mark where that lies within two errors), and CPU seconds over those of the learner as it is: for all cases together, and
for the case that takes longest in proportion. Plausible ranges are left out. Each result is a line of ``FILE`` as soon
as it is known. What the file has is not done again, so a run that was stopped goes on, and ``--minutes 0`` makes the
table of what there is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from experiments import harness
from experiments.ablation_cases import CASES
from experiments.ablation_rules import RULES, Rule, left_out

WHOLE = "nothing"
Result = dict[str, Any]
Job = tuple[str, str]  # what is left out, and the case
Results = dict[Job, Result]


def jobs(rules: Sequence[str], cases: Sequence[str]) -> list[Job]:
    """The fits that tell: the learner as it is, then each rule where it can matter. The longest fits begin first."""
    told = [(rule, case) for rule, case in product(rules, cases) if CASES[case].has(RULES[rule].needs)]
    return [(WHOLE, case) for case in _longest_first(cases)] + sorted(told, key=lambda job: -CASES[job[1]].seconds)


def _longest_first(cases: Sequence[str]) -> list[str]:
    return sorted(cases, key=lambda case: -CASES[case].seconds)


def fitted(job: Job) -> Result:
    """The evidence of a default fit without a rule, and its CPU seconds."""
    torch.set_num_threads(1)
    name, case = job
    found: Result = {"left_out": name, "case": case}
    with (
        warnings.catch_warnings(action="ignore"),
        left_out(RULES.get(name, Rule("", ()))),
        patch("orbitgp.estimators.base.plausible_ranges", lambda engine: {}),
    ):
        start = time.process_time()
        try:
            model = CASES[case].fit()
        except Exception as error:  # without the rule there may be no answer, and that is one
            return {**found, "error": f"{type(error).__name__}: {error}"}
        evidence = model.evidence_
    return {
        **found,
        "value": evidence.value,
        "stderr": evidence.stderr,
        "draws": evidence.num_samples,
        "evaluations": model.history_[-1]["step"],
        "seconds": round(time.process_time() - start, 2),
    }


def done(todo: Sequence[Job], processes: int, minutes: float) -> Iterator[Result]:
    """Results as they come. When the time is over, no further fit begins."""
    end, waiting, running = time.monotonic() + 60 * minutes, list(todo), set[Future[Result]]()
    if processes == 1:
        yield from (fitted(job) for job in waiting if time.monotonic() < end)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes, which read it when they begin
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        while running or (waiting and time.monotonic() < end):
            while waiting and len(running) < processes and time.monotonic() < end:
                running.add(pool.submit(fitted, waiting.pop(0)))
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in ready)


def known(path: Path | None) -> Results:
    """The results in a file; a last line that is not whole counts as none."""
    found: Results = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[result["left_out"], result["case"]] = result
    return found


def lost(result: Result, whole: Result) -> str:
    """The nats that a fit has lost, if it is one at least; a question mark if that may be chance."""
    if "error" in result:
        return str(result["error"])
    nats = whole["value"] - result["value"]
    errors = 2 * math.hypot(whole["stderr"] or 0.0, result["stderr"] or 0.0)
    return "" if abs(nats) < 1.0 else f"{nats:+.1f}{'?' if abs(nats) < errors else ''}"


def table(results: Results) -> str:
    """For each rule: which cases lose, which gain, and the time."""
    rows = []
    for name in [name for name in RULES if any(rule == name for rule, _ in results)]:
        told = {c: r for (rule, c), r in results.items() if rule == name and "value" in results.get((WHOLE, c), {})}
        changes = {case: lost(result, results[WHOLE, case]) for case, result in told.items()}
        losers = [f"{case} {nats}" for case, nats in changes.items() if nats and not nats.startswith("-")]
        gainers = [f"{case} {nats.replace('-', '+')}" for case, nats in changes.items() if nats.startswith("-")]
        pairs = {c: (r["seconds"], results[WHOLE, c]["seconds"]) for c, r in told.items() if "seconds" in r}
        if not pairs:
            continue
        ratios = {case: with_out / as_is for case, (with_out, as_is) in pairs.items()}
        slowest = max(ratios, key=lambda case: ratios[case])
        total = sum(p[0] for p in pairs.values()) / sum(p[1] for p in pairs.values())
        most = f"{slowest} × {ratios[slowest]:.2f}"
        rows.append([name, str(len(told)), "; ".join(losers), "; ".join(gainers), f"× {total:.2f}", most])
    return harness.markdown(["left out", "cases", "lose", "gain", "time", "slowest"], rows)


def line(result: Result) -> str:
    """One result for whoever waits."""
    numbers = result.get("error") or f"{result['value']:.2f} nats, {result['seconds']:.1f} s"
    return f"{result['left_out']} | {result['case']} | {numbers}"


def main(arguments: Sequence[str]) -> None:
    """Make the fits, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments ablation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", default=[*CASES], choices=CASES, metavar="CASE")
    parser.add_argument("--rules", nargs="+", default=[*RULES], choices=RULES, metavar="RULE")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which no further fit begins")
    parser.add_argument("--out", type=Path, help="a file of results, a line each")
    parser.add_argument("--plan", action="store_true", help="only say how long it takes")
    options = parser.parse_args(arguments)
    results = known(options.out)
    todo = [job for job in jobs(options.rules, options.cases) if job not in results]
    if options.plan:
        print(f"{len(todo)} fits, {sum(CASES[case].seconds for _, case in todo):,.0f} CPU seconds")
        return
    for result in done(todo, options.jobs, options.minutes):
        results[result["left_out"], result["case"]] = result
        print(line(result), flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
    print(table(results))
