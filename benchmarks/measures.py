"""What is measured: a step, its memory, predictions, and how a step grows with the sizes of the problem."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from benchmarks.bare import BARE, GEMM, bare
from benchmarks.problem import DEGREES, LENGTHSCALE, OUTPUTS, Orbitgp, Shape, problem
from benchmarks.straightforward import Straightforward
from benchmarks.timing import (
    Task,
    best,
    device_peak_memory,
    forget_peak_memory,
    interleaved,
    own_peak_memory,
    peak_memory,
    ratio,
    slope,
    timed,
)
from orbitgp.estimators.compact import compacted
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Dirichlet
from orbitgp.orbits import Rotation

CONTESTANTS: dict[str, Any] = {"orbitgp": Orbitgp, "straightforward": Straightforward}
LARGE = 10_000_000  # entries of the kernel matrix from which what takes minutes is left to --full
NEW_IMAGES = 1000
EXACT = {
    "data": 1000,
    "samples": 16,
    "images": 200,
    "points": 200,
}  # an exact model, new images, points of a compact model
BASE = {"rows": 100, "samples": 32, "inducing": 500, "size": 28, "outputs": 10}
GROWTH = {
    "rows": [50, 100, 200, 400],
    "samples": [16, 32, 64, 128],
    "inducing": [250, 500, 1000, 2000],
    "size": [14, 28, 56],
    "outputs": [1, 10, 100],
}


def steps(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    """A step of each contestant and each of the bare operations, in turn."""
    data = problem(shape, args.device)
    contestants = _contestants(shape, args)
    peaks = {name: _peak(name, "step", shape, args) for name in contestants}
    ours = Orbitgp(shape, data).step
    rounds = interleaved({**bare(shape, data), "orbitgp": ours}, args.device, args.seconds, args.clock)
    times = best(rounds)
    ratios = {"orbitgp / bare": ratio(rounds, "orbitgp", BARE), "orbitgp / GEMM": ratio(rounds, "orbitgp", GEMM)}
    if "straightforward" in contestants:  # in rounds of its own: it leaves neither cache nor memory as it found them
        pair = interleaved(
            {"orbitgp": ours, "straightforward": Straightforward(shape, data).step}, args.device, 0, args.clock
        )
        times["straightforward"] = best(pair)["straightforward"]
        ratios["straightforward / orbitgp"] = ratio(pair, "straightforward", ["orbitgp"])
    return {
        "shape": str(shape),
        "rounds": len(rounds["orbitgp"]),
        "milliseconds": times,
        "gemm": sum(times[name] for name in GEMM),
        "bare": sum(times[name] for name in BARE),
        "ratios": ratios,
        "peak_megabytes": peaks,
    }


def predictions(shape: Shape, args: argparse.Namespace) -> dict[str, Any]:
    """A thousand new images, and the memory of ten times as many."""
    data = problem(shape, args.device)
    x = new_images(NEW_IMAGES, args.device)
    z = data.inducing.flatten(1)
    part = 100
    xa = torch.rand(part * shape.samples, shape.dim, device=args.device)

    def gemm() -> None:
        for _ in range(NEW_IMAGES // part):
            xa @ z.mT

    contestant = Orbitgp(shape, data)

    def ours() -> object:
        return contestant.predict(x)

    rounds = interleaved({"bare GEMM": gemm, "orbitgp": ours}, args.device, args.seconds, args.clock)
    times = best(rounds)
    ratios = {"orbitgp / GEMM": ratio(rounds, "orbitgp", ["bare GEMM"])}
    if "straightforward" in _contestants(shape, args):  # a tenth of the images: its time is theirs
        slow = Straightforward(shape, data)
        times["straightforward"] = 1e4 * timed(lambda: slow.predict(x[: NEW_IMAGES // 10]), args.device, args.clock)
    counts = [NEW_IMAGES, 10 * NEW_IMAGES] if not _large(shape) or args.full else [NEW_IMAGES]
    return {
        "shape": str(shape),
        "rounds": len(rounds["orbitgp"]),
        "milliseconds": times,
        "ratios": ratios,
        "peak_megabytes": {str(count): _peak("orbitgp", str(count), shape, args) for count in counts},
    }


def exact_predictions(args: argparse.Namespace) -> dict[str, Any]:
    """New images by an exact model, and by the compact one made of it, beside the product that all pairs of samples
    take."""
    data, images, samples = EXACT["data"], EXACT["images"], EXACT["samples"]
    found, x = problem(Shape(data, samples, 1), args.device), new_images(images, args.device)
    kernel, likelihood = ScaleKernel(RBFKernel()), Dirichlet(OUTPUTS, concentration=1e-3)
    kernel.base_kernel.lengthscale, kernel.outputscale = LENGTHSCALE, 10.0
    model = ExactGP(kernel, Rotation(DEGREES), found.x, OUTPUTS, num_samples=samples).to(args.device)
    model.condition(likelihood, likelihood.encode(found.y.argmax(1)))
    small = compacted(model, model.predict_mean(model.x), EXACT["points"])
    points = model.samples(model.x).flatten(0, 1)
    part = model.samples(x[:10]).flatten(0, 1)

    def gemm() -> None:
        for _ in range(images // 10):
            part @ points.mT

    def labels() -> Tensor:
        return likelihood.most_probable(*model.predict(x, needs_variance=lambda *given: ~likelihood.is_sure(*given)))

    tasks: dict[str, Task] = {
        "bare GEMM": gemm,
        "means": lambda: model.predict_mean(x),
        "labels": labels,
        "probabilities": lambda: likelihood.predict_proba(*model.predict(x)),
        "compact": lambda: likelihood.most_probable(*small.predict(x)),
    }
    rounds = interleaved(tasks, args.device, args.seconds, args.clock)
    ratios = {f"{name} / GEMM": ratio(rounds, name, ["bare GEMM"]) for name in tasks if name != "bare GEMM"}
    changed = int((labels() != likelihood.most_probable(*small.predict(x))).sum())
    return {**EXACT, "milliseconds": best(rounds), "ratios": ratios, "changed": changed}


def growth(args: argparse.Namespace) -> dict[str, Any]:
    """Step times with one of the sizes changed at a time, and the exponent."""
    found = {}
    for name, sizes in GROWTH.items():
        shapes = [Shape(**{**BASE, name: size}) for size in sizes]
        tasks: dict[str, Task] = {
            str(n): Orbitgp(s, problem(s, args.device)).step for n, s in zip(sizes, shapes, strict=True)
        }
        times = list(best(interleaved(tasks, args.device, args.seconds, args.clock)).values())
        label, shown = ("dimension", [n**2 for n in sizes]) if name == "size" else (name, sizes)
        found[label] = {"sizes": shown, "milliseconds": times, "slope": slope([float(n) for n in shown], times)}
    return found


def memory(name: str, what: str, shape: Shape, device: torch.device) -> float:
    """Peak megabytes of this process during two steps, or a prediction of so many images."""
    call = _call(name, what, shape, device)
    forget_peak_memory()
    call()
    return own_peak_memory()


def _peak(name: str, what: str, shape: Shape, args: argparse.Namespace) -> float:
    """On a CPU in a process of its own; a GPU counts for itself."""
    if args.device.type == "cuda":
        gc.collect()
        return device_peak_memory(lambda: _call(name, what, shape, args.device)(), args.device)
    sizes = f"{shape.rows},{shape.samples},{shape.inducing}"
    return peak_memory(
        ["--memory", f"{name},{what}", "--shapes", sizes, "--device", "cpu", "--threads", str(args.threads)]
    )


def _call(name: str, what: str, shape: Shape, device: torch.device) -> Callable[[], object]:
    contestant = CONTESTANTS[name](shape, problem(shape, device))
    if what == "step":
        return lambda: [contestant.step() for _ in range(2)]
    x = new_images(int(what), device)
    return lambda: contestant.predict(x)


def _contestants(shape: Shape, args: argparse.Namespace) -> list[str]:
    return ["orbitgp"] if _large(shape) and not args.full else list(CONTESTANTS)


def _large(shape: Shape) -> bool:
    return shape.rows * shape.samples * shape.inducing > LARGE


def new_images(count: int, device: torch.device) -> Tensor:
    return problem(Shape(count, 1, 1), device, seed=1).x
