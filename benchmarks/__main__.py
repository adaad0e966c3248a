"""One training step of orbitgp against the bare operations that it is made of and against a straightforward GPyTorch
version.

    python -m benchmarks                   # all three shapes, growth, memory, prediction, profile
    python -m benchmarks --full            # the straightforward version at the largest shape too
    python -m benchmarks --shapes 100,32,500 --only steps
    python -m benchmarks --only answers    # CPU seconds of default fits, and of what a user would take instead
    python -m benchmarks --page            # docs/notes/speed.md from all results, nothing measured

Results go to benchmarks/results/<hardware>.json, and from there into docs/notes/speed.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.accuracy import accuracy
from benchmarks.answers import answers, answers_table
from benchmarks.measures import exact_predictions, growth, memory, predictions, steps
from benchmarks.page import write_page
from benchmarks.problem import Shape
from benchmarks.processes import shared
from benchmarks.profiling import profiled
from benchmarks.report import RESULTS, markdown, save, setting

SHAPES = {
    "cpu": [Shape(50, 20, 200), Shape(100, 32, 500), Shape(200, 120, 1200)],
    "cuda": [
        Shape(50, 20, 200),
        Shape(100, 32, 500),
        Shape(200, 120, 1200),
        Shape(200, 64, 1000),
        Shape(1500, 64, 3000),
    ],
}
PARTS = ("steps", "profiles", "predictions", "accuracy", "growth", "processes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What a training step costs.")
    parser.add_argument("--full", action="store_true", help="the slow parts too")
    parser.add_argument("--only", choices=(*PARTS, "answers"), nargs="+", default=PARTS, help="these parts alone")
    parser.add_argument(
        "--against", metavar="COMMIT", help="answers of an earlier commit, or of a folder with its src, too"
    )
    parser.add_argument("--jobs", type=int, default=1, help="answers at a time")
    parser.add_argument("--shapes", nargs="+", help="minibatch,S,M")
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=12.0, help="about how long the rounds of one comparison take")
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: of the process, for busy machines"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument(
        "--page", action="store_true", help="only write docs/notes/speed.md from the results that there are"
    )
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.page:
        print(write_page())
        return
    if "answers" in args.only:
        found = {"setting": setting(args.device, "cpu"), "against": args.against}
        found["answers"] = answers(args.full, args.device.type, args.against, args.jobs)
        path = args.out / "answers" / f"{args.device.type}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(answers_table(found["answers"]))
        return
    torch.set_num_threads(args.threads)
    shapes = [Shape(*map(int, sizes.split(","))) for sizes in args.shapes or ()] or SHAPES[args.device.type]
    if args.memory:
        name, what = args.memory.split(",")
        print(memory(name, what, shapes[0], args.device))
        return

    results: dict[str, Any] = {"setting": setting(args.device, args.clock)}
    args.clock = time.process_time if args.clock == "cpu" else time.perf_counter

    def measure(name: str, task: Callable[[Shape, argparse.Namespace], dict[str, Any]]) -> None:
        for shape in shapes if name in args.only else ():
            results.setdefault(name, []).append(task(shape, args))
            gc.collect()
            print(_line(name, results[name][-1]), flush=True)
            save(results, args.out)

    measure("steps", steps)
    measure("profiles", profiled)
    measure("predictions", predictions)
    results |= {"exact predictions": exact_predictions(args)} if "predictions" in args.only else {}
    if "accuracy" in args.only:
        shape = next((s for s in shapes if s.rows * s.samples * s.inducing > 1_000_000), shapes[0])
        results["accuracy"] = {"shape": str(shape), "errors": accuracy(shape, args.device)}
    if "growth" in args.only:
        results["growth"] = growth(args)
    if "processes" in args.only and args.device.type == "cpu":
        results["processes"] = shared()
    save(results, args.out)
    print(markdown(results))
    if args.out == RESULTS:
        print(write_page())


def _line(name: str, result: dict[str, Any]) -> str:
    if name == "predictions":
        against = result["ratios"]["orbitgp / GEMM"]["median"]
        return f"predict {result['shape']}: {result['milliseconds']['orbitgp']:,.0f} ms, {against:.2f} x GEMM"
    if name == "profiles":
        parts = "\n".join(f"  {ms:9.3f} ms  {part[:90]}" for part, ms in result["parts"].items())
        waits = f", {result['launches']:.0f} launches, waits: {result['waits']}" if "waits" in result else ""
        return f"profile {result['shape']}: {sum(result['parts'].values()):,.1f} ms{waits}\n{parts}"
    gemm, sum_of_bare = (result["ratios"][key]["median"] for key in ("orbitgp / GEMM", "orbitgp / bare"))
    times = ", ".join(f"{name} {ms:,.2f} ms" for name, ms in result["milliseconds"].items())
    return (
        f"step {result['shape']}: {sum_of_bare:.2f} x bare, {gemm:.2f} x GEMM; {times}; MB {result['peak_megabytes']}"
    )


if __name__ == "__main__":
    main()
