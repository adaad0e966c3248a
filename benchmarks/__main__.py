"""One training step of orbitgp against the bare operations that it is made of and against a straightforward GPyTorch version.

    python -m benchmarks                   # all three shapes, about three minutes on two cores
    python -m benchmarks --full            # the straightforward version at the largest shape too, and growth with N, S, M, D, L
    python -m benchmarks --shapes 100,32,500 --only steps

Results go to benchmarks/results/<hardware>.json and .md.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.accuracy import accuracy
from benchmarks.bare import BARE, GEMM, bare
from benchmarks.problem import Orbitgp, Shape, problem
from benchmarks.report import save, setting
from benchmarks.straightforward import Straightforward
from benchmarks.timing import Task, best, interleaved, own_peak_memory, peak_memory, ratio, slope

CONTESTANTS: dict[str, Any] = {"orbitgp": Orbitgp, "straightforward": Straightforward}
SHAPES = {
    "cpu": [Shape(50, 20, 200), Shape(100, 32, 500), Shape(200, 120, 1200)],
    "cuda": [Shape(50, 20, 200), Shape(100, 32, 500), Shape(200, 120, 1200), Shape(200, 64, 1000), Shape(1500, 64, 3000)],
}
LARGE = 10_000_000  # entries of the kernel matrix from which the straightforward version is left to --full
PARTS = ("steps", "predictions", "accuracy", "growth")
NEW_IMAGES = 1000
BASE = {"rows": 100, "samples": 32, "inducing": 500, "size": 28, "outputs": 10}
GROWTH = {
    "rows": [50, 100, 200, 400],
    "samples": [16, 32, 64, 128],
    "inducing": [250, 500, 1000, 2000],
    "size": [14, 28, 56],
    "outputs": [1, 10, 100],
}


def steps(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    data = problem(shape, args.device)
    tasks: dict[str, Task] = bare(shape, data)
    contestants = _contestants(shape, args)
    for name in contestants:
        tasks[name] = CONTESTANTS[name](shape, data).step
    rounds = interleaved(tasks, args.device, args.seconds, args.clock)
    times = best(rounds)
    ratios = {"orbitgp / bare": ratio(rounds, "orbitgp", BARE), "orbitgp / GEMM": ratio(rounds, "orbitgp", GEMM)}
    if "straightforward" in rounds:
        ratios["straightforward / orbitgp"] = ratio(rounds, "straightforward", ["orbitgp"])
    del tasks
    return {
        "shape": str(shape),
        "rounds": len(rounds["orbitgp"]),
        "milliseconds": times,
        "gemm": sum(times[name] for name in GEMM),
        "bare": sum(times[name] for name in BARE),
        "ratios": ratios,
        "peak_megabytes": {name: peak_memory(_memory_arguments(name, "step", shape, args)) for name in contestants},
    }


def predictions(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    data = problem(shape, args.device)
    x = _new_images(shape, args.device)
    z = data.inducing.flatten(1)
    part = 100
    xa = torch.rand(part * shape.samples, shape.dim, device=args.device)

    def gemm() -> None:
        for _ in range(NEW_IMAGES // part):
            xa @ z.mT

    def predict(contestant: Any) -> Task:
        return lambda: contestant.predict(x)

    tasks: dict[str, Task] = {"bare GEMM": gemm}
    for name in _contestants(shape, args):
        tasks[name] = predict(CONTESTANTS[name](shape, data))
    rounds = interleaved(tasks, args.device, args.seconds / 2, args.clock)
    return {
        "shape": str(shape),
        "rounds": len(rounds["orbitgp"]),
        "milliseconds": best(rounds),
        "ratio": ratio(rounds, "orbitgp", ["bare GEMM"]),
        "peak_megabytes": peak_memory(_memory_arguments("orbitgp", "predict", shape, args)),
    }


def growth(args: argparse.Namespace) -> dict[str, Any]:
    """Step times with one of the sizes changed at a time, and the exponent."""
    found = {}
    for name, sizes in GROWTH.items():
        shapes = [Shape(**{**BASE, name: size}) for size in sizes]
        tasks: dict[str, Task] = {str(n): Orbitgp(s, problem(s, args.device)).step for n, s in zip(sizes, shapes, strict=True)}
        times = list(best(interleaved(tasks, args.device, args.seconds, args.clock)).values())
        label, shown = (f"dimension (edge {sizes})", [n**2 for n in sizes]) if name == "size" else (name, sizes)
        found[label] = {"sizes": shown, "milliseconds": times, "slope": slope([float(n) for n in shown], times)}
    return found


def memory(name: str, what: str, shape: Shape, device: torch.device) -> float:
    """Peak megabytes of this process after two calls."""
    contestant = CONTESTANTS[name](shape, problem(shape, device))
    call: Callable[[], object] = contestant.step
    if what == "predict":
        x = _new_images(shape, device)
        call = lambda: contestant.predict(x)  # noqa: E731
    for _ in range(2):
        call()
    return own_peak_memory(device)


def _contestants(shape: Shape, args: argparse.Namespace) -> list[str]:
    large = shape.rows * shape.samples * shape.inducing > LARGE
    return ["orbitgp"] if large and not args.full else list(CONTESTANTS)


def _memory_arguments(name: str, what: str, shape: Shape, args: argparse.Namespace) -> list[str]:
    sizes = f"{shape.rows},{shape.samples},{shape.inducing}"
    return ["--memory", f"{name},{what}", "--shapes", sizes, "--device", str(args.device), "--threads", str(args.threads)]


def _new_images(shape: Shape, device: torch.device) -> Tensor:
    return problem(Shape(NEW_IMAGES, 1, 1), device, seed=1).x


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="What a training step costs.")
    parser.add_argument("--full", action="store_true", help="the slow parts too")
    parser.add_argument("--only", choices=PARTS, nargs="+", help="these parts alone, printed and not saved")
    parser.add_argument("--shapes", nargs="+", help="minibatch,S,M")
    parser.add_argument("--device", type=torch.device, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=12.0, help="about how long the rounds of one comparison take")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: of the process, for busy machines")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    shapes = [Shape(*map(int, sizes.split(","))) for sizes in args.shapes or ()] or SHAPES[args.device.type]
    if args.memory:
        name, what = args.memory.split(",")
        print(memory(name, what, shapes[0], args.device))
        return

    parts = args.only or [part for part in PARTS if part != "growth" or args.full]
    results: dict[str, Any] = {"setting": setting(args.device, args.clock)}
    args.clock = time.process_time if args.clock == "cpu" else time.perf_counter
    for name, measure in (("steps", steps), ("predictions", predictions)):
        for shape in shapes if name in parts else ():
            results.setdefault(name, []).append(measure(shape, args))
            gc.collect()
            print(_line(name, results[name][-1]), flush=True)
    if "accuracy" in parts:
        shape = shapes[min(1, len(shapes) - 1)]
        results["accuracy"] = {"shape": str(shape), "errors": accuracy(shape, args.device)}
    if "growth" in parts:
        results["growth"] = growth(args)
    if args.only or args.shapes:
        from benchmarks.report import markdown

        print(markdown(results))
    else:
        page = save(results)
        print(page.read_text())


def _line(name: str, result: dict[str, Any]) -> str:
    if name == "predictions":
        return f"predict {result['shape']}: {result['milliseconds']['orbitgp']:,.0f} ms, {result['ratio']['median']:.2f} x GEMM"
    gemm, sum_of_bare = (result["ratios"][key]["median"] for key in ("orbitgp / GEMM", "orbitgp / bare"))
    return f"step {result['shape']}: {result['milliseconds']['orbitgp']:,.1f} ms, {sum_of_bare:.2f} x bare, {gemm:.2f} x GEMM"


if __name__ == "__main__":
    main()
