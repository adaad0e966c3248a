"""CIFAR-10 from 10 to 500 images of each class: what the evidence chooses, and a small network with the usual
augmentation.

Each subset is learned from alone: the constants of the map, kernel and noise of four models, all with reflections, and
the evidence of the subset says which of them predicts. At most 50 images of each class tell the constants and the
model; more of them tell kernel and noise, and are predicted from. The network (three pairs of convolutions, mirrored
and shifted copies) has a fixed recipe.

``python -m experiments few-photographs --folder data/cifar10 --device cuda``
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Tensor, nn

from experiments import harness
from experiments.cifar import read, say
from experiments.harness import Claims, Record, Records
from orbitgp import InvariantGPClassifier, TrainingOptions
from orbitgp.kernels import PatchDictionary, SideBySide
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Flip

Layers = tuple[tuple[float, dict[str, Any]], ...]  # the share of a single layer's patches in each, and its shape

# Climbs begin near what the evidence of 3,000 images found before.
ONE: Layers = ((1, {"whitening": 0.09, "bias": 2.3, "level": 0.001, "window": 0.46}),)
TWO: Layers = (
    (0.5, {"size": 5, "cells": 14, "whitening": 0.07, "bias": 1.2, "level": 0.001, "window": 0.4}),
    (4, {"size": 3, "whitening": 4.0, "bias": 2.8, "level": 0.02, "window": 0.68}),
)


def sized(size: int) -> Layers:
    """One layer of patches of this size."""
    return ((1, {**ONE[0][1], "size": size}),)


def matern() -> Kernel:
    """A rougher kernel than the default one, of vectors of unit length."""
    kernel = ScaleKernel(MaternKernel(nu=1.5)).double()
    kernel.base_kernel.lengthscale = 1.0
    return kernel


class Kind(NamedTuple):
    """Stacks of layers side by side, the patches of a single layer's dictionary, and the kernel (None: default)."""

    stacks: tuple[Layers, ...]
    patches: int = 512
    kernel: Callable[[], Kernel | None] = lambda: None


KINDS = {
    "one layer": Kind((ONE,), 1024),
    "one and two layers": Kind((ONE, TWO)),
    "one and two layers, Matérn": Kind((ONE, TWO), kernel=matern),
    "three sizes and two layers": Kind((sized(4), ONE, sized(9), TWO)),
}
SIZES = (10, 50, 100, 500)

images = cache(read)


def feature_map(stacks: Sequence[Layers], patches: int) -> SideBySide:
    """What g sees."""
    layers = [[PatchDictionary(round(share * patches), **shape) for share, shape in stack] for stack in stacks]
    return SideBySide(*(nn.Sequential(*stack) if len(stack) > 1 else stack[0] for stack in layers))


def with_constants(seen: nn.Module, start: InvariantGPClassifier) -> nn.Module:
    """A map with the constants that a model has learned, which stay, and with its weights, which may be learned."""
    seen.load_state_dict(dict(start.kernel_.feature_map.named_parameters()), strict=False)
    for part in seen.modules():
        if isinstance(part, PatchDictionary):
            part.requires_grad_(False)
    return seen


def fitted(
    seen: nn.Module,
    x: np.ndarray,
    y: np.ndarray,
    device: str,
    seed: int,
    max_steps: int,
    kernel: Kernel | None = None,
    likelihood: Likelihood | str = "gaussian",
) -> InvariantGPClassifier:
    """A model of these images and their mirror images, after this many evaluations."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    model = InvariantGPClassifier(
        Flip(),
        kernel,
        feature_map=seen,
        likelihood=likelihood,
        inference="exact",
        max_steps=max_steps,
        device=device,
        random_state=seed,
        training=TrainingOptions(start_rows=0),  # one climb: a few rows would only mislead the constants of the map
    )
    return model.fit(x, y)


class Chosen(NamedTuple):
    """The model with the most evidence, the evidence of all, and the seconds that they took."""

    name: str
    model: InvariantGPClassifier
    nats: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Few(harness.Run):
    """Models of subsets with so many images of each class, each a part of the next; ``seed`` chooses them."""

    folder: str
    sizes: tuple[int, ...]
    seed: int = 0
    num_train: int = 10_000
    num_test: int = 10_000
    most: int = 50  # images of each class that tell the constants of maps
    patches: int = 1024  # of a dictionary, at most
    steps: int = 80
    more_steps: int = 8  # that kernel and noise climb where there are more images
    network_steps: int = 400

    def name(self) -> str:
        return harness.slug("few-photographs", self.seed)

    def measure(self, device: str) -> Record:
        x, y = images(Path(self.folder), "train", self.num_train)
        order = np.random.default_rng(self.seed).permutation(len(x))
        x_test, y_test = images(Path(self.folder), "test", self.num_test)
        rows_of = [order[y[order] == label] for label in np.unique(y)]
        found: list[Record] = []
        chosen: Chosen | None = None
        for each in self.sizes:
            rows, all_rows = (np.concatenate([of[:count] for of in rows_of]) for count in (min(each, self.most), each))
            if chosen is None or each <= self.most:
                chosen = None  # its memory is needed
                chosen = self.chosen(x[rows], y[rows], device)
            begin, model = time.perf_counter(), chosen.model
            if each > self.most:
                model = self.of_more(chosen, x[all_rows], y[all_rows], device)
            labels = np.searchsorted(model.classes_, y_test)
            scores = self.scores(model.predict_proba(x_test), labels)
            times = {"choice": chosen.seconds, "gp": time.perf_counter() - begin}
            begin = time.perf_counter()
            given = x[all_rows], np.searchsorted(model.classes_, y[all_rows]), x_test, self.network_steps, self.seed
            probs = network(*given, device, augment=augmented, mirrored=True)
            rival = self.scores(probs, labels)
            times["network"] = time.perf_counter() - begin
            errors = f"{scores['error_rate']:.4f}, network {rival['error_rate']:.4f}"
            say(f"{each} of each, seed {self.seed}: {errors}; {chosen.name}, {times}")
            one = {"each": each, "chosen": chosen.name, "nats": chosen.nats}
            found.append({**one, "metrics": scores, "network": rival, "seconds": times})
        return {"data": {"name": "CIFAR-10", "test": len(y_test)}, "found": found}

    def chosen(self, x: np.ndarray, y: np.ndarray, device: str) -> Chosen:
        """What the evidence of these images chooses."""
        begin, best, nats = time.perf_counter(), None, dict[str, float]()
        for name, (stacks, patches, kernel) in KINDS.items():
            seen = feature_map(stacks, min(patches, self.patches))
            model = fitted(seen, x, y, device, self.seed, self.steps, kernel())
            nats[name] = model.evidence_.value
            if best is None or nats[name] > best[1].evidence_.value:
                best = name, model
        assert best is not None
        say(f"{len(x)} images, seed {self.seed}: {nats}")
        return Chosen(*best, nats, time.perf_counter() - begin)

    def of_more(self, chosen: Chosen, x: np.ndarray, y: np.ndarray, device: str) -> InvariantGPClassifier:
        """The same model of more images: their patches, kernel and noise, with the constants of the map as they are."""
        stacks, patches, _ = KINDS[chosen.name]
        seen = with_constants(feature_map(stacks, min(patches, self.patches)), chosen.model)
        given = chosen.model.kernel_.base_kernel, chosen.model.likelihood_
        return fitted(seen, x, y, device, self.seed, self.more_steps, *given)


def network(
    x: np.ndarray,
    y: np.ndarray,
    x_test: np.ndarray,
    steps: int,
    seed: int,
    device: str = "cpu",
    *,
    augment: Callable[[Tensor], Tensor],
    widths: Sequence[int] = (64, 128, 256),
    batch: int = 128,
    mirrored: bool = False,
) -> np.ndarray:
    """Probabilities of a small network, trained on augmented images between 0 and 1 (N, C, H, W).

    ``mirrored`` predicts with the mean over each image and its mirror image.
    """
    torch.manual_seed(seed)
    of_rows = torch.Generator(device).manual_seed(seed)  # the same rows, whatever augments them
    seen, labels = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    mean, std = seen.mean((0, 2, 3), keepdim=True), seen.std((0, 2, 3), keepdim=True)
    layers: list[nn.Module] = []
    before = seen.shape[1]
    for width in widths:
        for channels in (before, width):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers, before = [*layers, nn.MaxPool2d(2)], width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, int(labels.max()) + 1)).to(
        device
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    for _ in range(steps):
        rows = torch.randint(len(seen), (batch,), generator=of_rows, device=device)
        loss = F.cross_entropy(model((augment(seen[rows]) - mean) / std), labels[rows], label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    model.eval()
    found = []
    with torch.no_grad():
        for part in ((torch.from_numpy(x_test).to(device) - mean) / std).split(1000):
            outputs = (model(part) + model(part.flip(-1))) / 2 if mirrored else model(part)
            found.append(outputs.softmax(1).cpu())
    return torch.cat(found).numpy()


def augmented(images: Tensor) -> Tensor:
    """The usual: half of the images mirrored, all shifted by up to four pixels."""
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    images = F.pad(torch.where(mirrored, images.flip(-1), images), (4,) * 4, mode="reflect")
    side, starts = images.shape[-1] - 8, torch.randint(9, (2, len(images), 1), device=images.device)
    down, across = (start + torch.arange(side, device=images.device) for start in starts)
    rows = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[rows, down[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)


def accuracies(records: Records) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Of the model and of the network, for each number of images."""
    found = [one for record in records for one in record["found"]]
    each = {size: [one for one in found if one["each"] == size] for size in sorted({one["each"] for one in found})}

    def right(of: list[Record], kind: str) -> np.ndarray:
        return np.array([1 - one[kind]["error_rate"] for one in of])

    return {size: (right(of, "metrics"), right(of, "network")) for size, of in each.items()}


def table(records: Records) -> str:
    """Accuracies with standard errors over subsets."""
    cells = []
    for size, found in accuracies(records).items():
        means = [harness.with_error(*harness.mean(list(100 * a)), digits=1) + " %" for a in found]
        cells.append([str(size), str(len(found[0])), *means])
    return harness.markdown(["images a class", "subsets", "chosen by the evidence", "network, augmented"], cells)


def check(records: Records) -> Claims:
    """From 50 images of each class, 60 % are right; and the model is not behind the network."""
    claims = {}
    for size, (model, rival) in accuracies(records).items():
        claims[f"{size} a class: at least as good as the network"] = bool(model.mean() >= rival.mean())
        if size == 50:
            claims["50 a class: at least 60 %"] = bool(model.mean() >= 0.6)
    return claims


def plan(options: argparse.Namespace) -> list[Few]:
    """The subsets of each seed."""
    quick: harness.Settings = {
        "num_test": 100,
        "most": 2,
        "patches": 16,
        "steps": 3,
        "more_steps": 2,
        "network_steps": 5,
    }
    sizes = (2, 4) if options.quick else SIZES
    return [Few(str(options.folder), sizes, seed, **(quick if options.quick else {})) for seed in range(options.seeds)]


EXPERIMENT = harness.Experiment(
    "few_photographs",
    __doc__,
    plan,
    table,
    check,
    seeds=5,
    options={"--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of the images, as .npz files"}},
)
