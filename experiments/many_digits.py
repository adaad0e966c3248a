"""8,100,000 digits from disk: MNIST's, each deformed 135 times by a fixed orbit, against the 60,000 from memory.

The deformed digits are written as bytes, a file for each round over MNIST. A sparse classifier is trained on the
folder, and the same one on MNIST itself in memory. It prints the time of a step, with and without reading ahead, the
peak of resident memory, and the error on the test set of MNIST, which is not deformed.

``python -m experiments many_digits --device cuda --folder /tmp/digits``
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.datasets import mnist
from orbitgp.estimators import data as estimator_data
from orbitgp.inference.rows import StoredRows
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits.parse import make_orbit

ORBIT = "affine*deformation"


def main(arguments: list[str]) -> None:
    """Write the digits, train, and print what came out."""
    parser = argparse.ArgumentParser(prog="many_digits", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the digits are written, or were before")
    parser.add_argument(
        "--count", type=int, default=8_100_000, help="how many, in whole rounds over the digits of MNIST"
    )
    parser.add_argument("--digits", type=int, default=60_000, help="the first so many digits of MNIST")
    parser.add_argument("--num-inducing", "-m", type=int, default=1000)
    parser.add_argument("--max-steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--posterior-rows", type=int, default=20_000)
    parser.add_argument("--orbit", default="none", help="of the model: the digits are deformed already")
    parser.add_argument("--feature-map", choices=["none", "gradients"], default="gradients")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)

    data = mnist()
    x, y = data.x_train[: options.digits], data.y_train[: options.digits]
    rounds = max(1, options.count // len(x))
    write(options.folder, x, rounds, torch.device(options.device))
    labels = np.tile(y, rounds)
    test = (255 * data.x_test, data.y_test)
    estimator_data.LOADED_BYTES = 0  # however few they are
    say(f"{len(labels):,} digits in {rounds} files; {peak():.2f} GB at the peak so far")
    fit(f"{len(labels):,} from disk", options, options.folder, labels, test)
    say(f"peak of resident memory: {peak():.2f} GB")
    ahead, StoredRows.prefetch = StoredRows.prefetch, lambda self, index: None  # type: ignore[method-assign]
    fit("without reading ahead", options, options.folder, labels, None, max_steps=min(60, options.max_steps))
    StoredRows.prefetch = ahead  # type: ignore[method-assign]
    fit(f"{len(x):,} from memory", options, 255 * x, y, test)


def write(folder: Path, x: np.ndarray, rounds: int, device: torch.device) -> None:
    """A file for each round over the digits, unless it is there. The seed of a round is its number."""
    folder.mkdir(parents=True, exist_ok=True)
    orbit = make_orbit(ORBIT, x.shape[1:]).to(device)
    draws = orbit.draws_for(torch.Size(x.shape[1:]))
    begin = time.perf_counter()
    for number in range(rounds):
        path = folder / f"{number:04}.npy"
        if path.exists():
            continue
        generator = torch.Generator(device).manual_seed(number)
        file = np.lib.format.open_memmap(path.with_suffix(".part"), mode="w+", dtype=np.uint8, shape=x.shape)
        for start in range(0, len(x), 10_000):
            part = torch.from_numpy(x[start : start + 10_000]).to(device)
            with torch.no_grad():
                u = torch.rand(len(part), 1, draws, generator=generator, device=device)
                deformed = (255 * orbit.transform(part, u)[:, 0]).round().clamp(0, 255).to(torch.uint8)
            file[start : start + 10_000] = deformed.cpu().numpy()
        file.flush()
        del file  # unmapped, so that it does not count as memory of this process
        path.with_suffix(".part").rename(path)
        if number % 15 == 14:
            say(f"{number + 1} of {rounds} files written, {time.perf_counter() - begin:.0f} s")


def fit(name: str, options: argparse.Namespace, x: Any, y: np.ndarray, test: Any, max_steps: int | None = None) -> None:
    """Train a model, and print its time, its evidence and its error."""
    begin = time.perf_counter()
    model = InvariantGPClassifier(
        make_orbit(options.orbit, (28, 28)),
        feature_map=OrientedGradients() if options.feature_map == "gradients" else None,
        num_inducing=options.num_inducing,
        max_steps=max_steps or options.max_steps,
        batch_size=options.batch_size,
        inference="sparse",
        device=options.device,
        random_state=0,
        training=TrainingOptions(posterior_rows=options.posterior_rows),
    )
    times = []

    def record(found: dict[str, Any]) -> None:
        times.append((found["step"], found["seconds"]))
        if len(times) % 10 == 0:
            say(f"  step {found['step']}, {found['seconds']:.1f} s, bound {found['bound']:,.0f}")

    model.fit(x, y, callback=record)
    (first, early), (last, late) = times[len(times) // 4], times[-1]
    error = "" if test is None else f"; test error {100 * np.mean(model.predict(test[0]) != test[1]):.2f} %"
    seconds = time.perf_counter() - begin
    step = 1000 * (late - early) / max(1, last - first)
    per_datum = model.evidence_.value / len(y)
    say(f"{name}: {step:.1f} ms a step, {seconds:.0f} s in all, evidence {per_datum:.3f} nats a datum{error}")


def peak() -> float:
    """Gigabytes of resident memory at the peak."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)
