"""The paper's figure 1: samples of the invariance that was learned on MNIST, around some digits.

``python -m experiments.figure1 --out results`` trains an affine orbit, or with ``--orbit affine*deformation`` its
composition with local deformations, on MNIST digits (``ORBITGP_DATA`` names the folder that has them), and writes figure1.png,
figure1_ranges.png and figure1.json. ``--train 60000 --inducing 1000 --steps 1500 --device cuda`` is the size of the paper.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

from orbitgp import plotting as pictures
from orbitgp.datasets import mnist
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.orbits import Affine, LocalDeformation, Orbit
from orbitgp.report.provenance import provenance
from orbitgp.saving import atomic as files

ORBITS = {"affine": Affine, "affine*deformation": lambda: Affine() * LocalDeformation()}


def main(arguments: list[str] | None = None) -> None:
    """Train, print what was learned, write the pictures and the record."""
    parser = argparse.ArgumentParser(prog="python -m experiments.figure1", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--orbit", choices=list(ORBITS), default="affine")
    parser.add_argument("--train", type=int, default=2000, help="training digits (default: %(default)s)")
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    data = mnist()
    before: Orbit = ORBITS[options.orbit]()
    settings = {
        "num_inducing": options.inducing,
        "max_steps": options.steps,
        "batch_size": options.batch,
        "num_samples": options.samples,
        "random_state": options.seed,
        "device": options.device,
    }
    model = InvariantGPClassifier(copy.deepcopy(before), likelihood="gaussian", verbose=True, **settings)
    start = time.perf_counter()
    model.fit(data.x_train[: options.train], data.y_train[: options.train])
    seconds = time.perf_counter() - start
    error = 1 - model.score(data.x_test, data.y_test)
    print(model.orbit_.describe())
    print(f"{model.evidence_}; test error {error:.2%}; {seconds:.0f} s")

    options.out.mkdir(parents=True, exist_ok=True)
    digits = [data.x_test[i] for i in (0, 1, 4, 7)]
    title = f"the invariance learned from {options.train:,} MNIST digits"
    around = pictures.show(model.orbit_, digits, num_samples=24, title=title)
    files.replace(options.out / "figure1.png", lambda beside: around.savefig(beside, dpi=150))
    ranges = pictures.ranges(before, model.orbit_, title="ranges, before and after learning")
    files.replace(options.out / "figure1_ranges.png", lambda beside: ranges.savefig(beside, dpi=150))
    record = {
        "experiment": "figure1",
        "orbit": options.orbit,
        "train": options.train,
        "settings": settings,
        "learned": model.orbit_.describe().to_dict(),
        "evidence": model.evidence_.value,
        "stderr": model.evidence_.stderr,
        "error": error,
        "seconds": seconds,
        **provenance(options.device),
    }
    files.write_json(options.out / "figure1.json", record)


if __name__ == "__main__":
    main()
