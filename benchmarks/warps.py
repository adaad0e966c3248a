"""What sampling an orbit costs, against the interpolation that nobody can avoid.

The yardstick is `torch.nn.functional.grid_sample` with a grid that is there already, forward and backward (into the
grid), on as many images as the orbit makes. Both are timed in turn in one run, and the smaller time of several counts.

    python -m benchmarks.warps            # or: python benchmarks/warps.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from orbitgp.orbits import Affine, LocalDeformation, Orbit, Rotation
from orbitgp.orbits.sampling import base_draws


def orbits() -> dict[str, Orbit]:
    return {
        "Rotation": Rotation(),
        "Affine": Affine(),
        "LocalDeformation": LocalDeformation(),
        "Affine * LocalDeformation": Affine() * LocalDeformation(),
    }


def seconds(task: Callable[[], None], device: torch.device) -> float:
    def sync() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    sync()
    start = time.perf_counter()
    task()
    sync()
    return time.perf_counter() - start


def run(
    images: int = 18_000, samples: int = 32, size: int = 28, repeats: int = 5, device: str = "cpu"
) -> dict[str, object]:
    """Milliseconds of the yardstick and of each orbit, and their ratio, for `images` samples of size x size in
    float32."""
    place = torch.device(device)
    generator = torch.Generator(place).manual_seed(0)
    rows = images // samples
    x = torch.rand(rows, size, size, generator=generator, device=place)
    copies = x[:, None].repeat_interleave(samples, 0)
    # Points near the pixels that they start from, as after a small warp: memory is read in the same order as by an
    # orbit.
    still = F.affine_grid(
        torch.eye(2, 3, device=place).expand(len(copies), 2, 3), list(copies.shape), align_corners=False
    )
    grid = (still + 0.02 * torch.randn(still.shape, generator=generator, device=place)).requires_grad_()
    weight = torch.rand(len(copies), 1, size, size, generator=generator, device=place)

    def bare() -> None:
        grid.grad = None
        F.grid_sample(copies, grid, align_corners=False).backward(weight)

    def sampled(orbit: Orbit) -> Callable[[], None]:
        def task() -> None:
            orbit.zero_grad()
            u = base_draws(
                "qmc", rows, 2, samples // 2, orbit.draws_for(x.shape[1:]), generator=generator, device=place
            )
            orbit.transform(x, u.flatten(1, 2)).backward(weight.view(rows, samples, size, size))

        return task

    tasks = {"grid_sample": bare, **{name: sampled(orbit.to(place)) for name, orbit in orbits().items()}}
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(repeats + 1):  # the first round warms up, and the minimum does not mind
        for name, task in tasks.items():
            best[name] = min(best[name], seconds(task, place))
    milliseconds = {name: round(1e3 * s, 2) for name, s in best.items()}
    ratios = {name: round(s / best["grid_sample"], 3) for name, s in best.items() if name != "grid_sample"}
    setting = {"images": rows * samples, "size": size, "threads": torch.get_num_threads(), "device": device}
    return {"setting": setting, "milliseconds": milliseconds, "ratio": ratios}


if __name__ == "__main__":
    print(json.dumps(run(device="cuda" if torch.cuda.is_available() else "cpu"), indent=2))
