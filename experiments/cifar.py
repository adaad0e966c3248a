"""CIFAR-10: an exact Gaussian process of patches, of which the evidence chooses the orbit and the layers.

Three models learn their constants from some training images: patches in one layer, without an orbit and with reflections, and
one and two layers side by side, with reflections. The one with the most evidence is fitted to all training images, exactly,
with larger dictionaries: the constants of its map are those that were learned, and kernel and noise are learned on. The test
images are read once, after that.

``--folder`` holds ``.npz`` files with arrays ``x_train`` (N, 32, 32, 3), ``y_train``, ``x_test`` and ``y_test``; parts of an
array, in several files, are joined in the order of the names of the files.

``python -m experiments cifar --folder data/cifar10 --device cuda``
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.kernels import PatchDictionary, SideBySide
from orbitgp.orbits.parse import make_orbit
from orbitgp.training.records import hyperparameters

MODELS = {
    "one layer, none": ("none", 1),
    "one layer, flip": ("flip", 1),
    "one and two layers, flip": ("flip", 2),
}
GOALS = (0.862, 0.88, 0.90)


def feature_map(layers: int, patches: int) -> nn.Module:
    """One layer of patches, or one and two side by side: the first of two has a fine grid, of which the second sees patches."""
    one = PatchDictionary(patches)
    if layers == 1:
        return SideBySide(one)
    first = PatchDictionary(patches // 4, size=5, cells=14)
    return SideBySide(one, nn.Sequential(first, PatchDictionary(2 * patches, size=3)))


def read(folder: Path, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first images, between 0 and 1, and their labels."""
    arrays: dict[str, list[np.ndarray]] = {f"x_{kind}": [], f"y_{kind}": []}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            for name in arrays.keys() & set(file.files):
                arrays[name].append(file[name])
    if not all(arrays.values()):
        raise FileNotFoundError(f"there is no .npz file with x_{kind} and y_{kind} in {folder}.")
    x, y = (np.concatenate(parts)[:count] for parts in arrays.values())
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)).astype(np.float32) / 255, y


@dataclass(frozen=True)
class Photographs(harness.Run):
    """The choice among models, and the model that was chosen, of the first ``num_train`` images."""

    folder: str
    seed: int = 0
    num_train: int = 50_000
    num_test: int = 10_000
    choice_rows: int = 2000
    choice_patches: int = 512
    patches: int = 1024
    likelihood: str = "gaussian"
    max_seconds: float = 300.0

    def name(self) -> str:
        return harness.slug("cifar", self.seed)

    def measure(self, device: str) -> Record:
        x, y = read(Path(self.folder), "train", self.num_train)
        some = np.random.default_rng(self.seed).permutation(len(x))[: self.choice_rows]
        say(f"{len(x):,} images, {len(some):,} of them to choose by")
        choice, learned = {}, {}
        for name, (orbit, layers) in MODELS.items():
            model, record = self.fitted(orbit, feature_map(layers, self.choice_patches), x[some], y[some], device)
            choice[name], learned[name] = record, model
            say(f"{name}: {record['evidence']['value']:,.0f} nats in {record['seconds']:.0f} s; {record['constants']}")
        chosen = max(choice, key=lambda name: choice[name]["evidence"]["value"])
        say(f"the evidence chooses: {chosen}")
        orbit, layers = MODELS[chosen]
        larger, start = feature_map(layers, self.patches), learned[chosen]
        larger.load_state_dict(dict(start.kernel_.feature_map.named_parameters()), strict=False)
        larger.requires_grad_(False)
        model, record = self.fitted(orbit, larger, x, y, device, start, self.max_seconds)
        say(f"{chosen}, {self.patches:,} patches: {record['evidence']} in {record['seconds']:.0f} s; {record['constants']}")
        x_test, y_test = read(Path(self.folder), "test", self.num_test)
        begin = time.perf_counter()
        probs = model.predict_proba(x_test)
        scores = self.scores(probs, np.searchsorted(model.classes_, y_test))
        say(f"{scores}, predicted in {time.perf_counter() - begin:.0f} s")
        return {
            "data": {"name": "CIFAR-10", "train": len(y), "test": len(y_test)},
            "choice": choice,
            "chosen": chosen,
            **record,
            "seconds": {"choice": sum(r["seconds"] for r in choice.values()), "fit": record["seconds"]},
            "metrics": scores,
        }

    def fitted(
        self,
        orbit: str,
        seen: nn.Module,
        x: np.ndarray,
        y: np.ndarray,
        device: str,
        start: InvariantGPClassifier | None = None,
        max_seconds: float | None = None,
    ) -> tuple[InvariantGPClassifier, Record]:
        """A model of these data, and what is to be told of it."""
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
        model = InvariantGPClassifier(
            make_orbit(orbit),
            None if start is None else start.kernel_.base_kernel,
            feature_map=seen,
            likelihood=self.likelihood if start is None else start.likelihood_,
            inference="exact",
            max_seconds=max_seconds,
            device=device,
            random_state=self.seed,
            training=TrainingOptions(start_rows=0),  # one climb: a few rows would only mislead the constants of the map
        )
        begin = time.perf_counter()

        def progress(found: dict[str, Any]) -> None:
            say(f"  step {found['step']}, {time.perf_counter() - begin:.0f} s, evidence {found['bound']:,.1f}")

        model.fit(x, y, callback=progress)
        maps = [part for part in model.kernel_.feature_map.modules() if isinstance(part, PatchDictionary)]
        return model, {
            "plan": str(model.plan_),
            "evidence": asdict(model.evidence_),
            "seconds": time.perf_counter() - begin,
            "learned": hyperparameters(model.model_.kernel, model.likelihood_),
            "constants": [{name: float(f"{value:.3g}") for name, value in part.named_constants().items()} for part in maps],
        }


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)


def table(records: Records) -> str:
    """The models to choose from, and the one that was chosen, for each seed."""
    cells = []
    for record in records:
        for name, found in record["choice"].items():
            rows = str(record["settings"]["choice_rows"])
            cells.append([name, rows, f"{found['evidence']['value']:,.0f}", "", "", "", f"{found['seconds']:.0f}"])
        scores, data = record["metrics"], record["data"]
        accuracy = f"{100 * (1 - scores['error_rate']):.2f} %"
        found = [f"{record['evidence']['value']:,.0f}", accuracy, f"{scores['nll']:.3f}", f"{scores['ece']:.4f}"]
        cells.append([f"**{record['chosen']}**", f"{data['train']:,}", *found, f"{record['seconds']['fit']:.0f}"])
    return harness.markdown(["model", "images", "evidence (nats)", "accuracy", "NLL", "ECE", "seconds"], cells)


def check(records: Records) -> Claims:
    """What the experiment is to show; accuracies are asked of all images alone."""
    claims = {}
    for record in records:
        seed = f"seed {record['settings']['seed']}"
        nats = {name: found["evidence"]["value"] for name, found in record["choice"].items()}
        claims[f"{seed}: the evidence wants reflections"] = nats["one layer, flip"] > nats["one layer, none"]
        if record["data"]["train"] == 50_000:
            accuracy = 1 - record["metrics"]["error_rate"]
            claims |= {f"{seed}: {accuracy:.2%} is at least {goal:.1%}": accuracy >= goal for goal in GOALS}
    return claims


def plan(options: argparse.Namespace) -> list[Photographs]:
    """A run for each seed."""
    quick = {"num_train": 300, "num_test": 100, "choice_rows": 60, "choice_patches": 4, "patches": 8} if options.quick else {}
    sizes = {name: value for name in ("patches", "max_seconds") if (value := getattr(options, name)) is not None}
    return [Photographs(str(options.folder), seed, **(quick | sizes)) for seed in range(options.seeds)]


EXPERIMENT = harness.Experiment(
    "cifar",
    __doc__,
    plan,
    table,
    check,
    seeds=1,
    options={
        "--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of the images, as .npz files"},
        "--patches": {"type": int, "help": "in the dictionary of one layer"},
        "--max-seconds": {"type": float, "help": "for the fit to all images"},
    },
)
