"""CIFAR-10 from 10 to 500 images of each class: what the evidence chooses, and a small network with the usual
augmentation.

Each subset is learned from alone: the constants of the map, kernel and noise of four models, all with reflections, and
the evidence of the subset says which of them predicts. The network (three pairs of convolutions, mirrored and shifted
copies) has a fixed recipe.

``python -m experiments few-photographs --folder data/cifar10 --device cuda``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from torch import Tensor, nn

from experiments import harness
from experiments.cifar import MODELS, ONE, TWO, Layers, Model, Photographs, feature_map, read, say
from experiments.harness import Claims, Record, Records


def sized(size: int) -> Layers:
    """One layer of patches of this size."""
    return ((1, {**ONE[0][1], "size": size}),)


def matern() -> Kernel:
    """A rougher kernel than the default one, of vectors of unit length."""
    kernel = ScaleKernel(MaternKernel(nu=1.5)).double()
    kernel.base_kernel.lengthscale = 1.0
    return kernel


KINDS: dict[str, tuple[Model, int, Callable[[], Kernel | None]]] = {  # patches of their dictionaries, and kernels
    "one layer": (MODELS["one layer, flip"], 1024, lambda: None),
    "one and two layers": (MODELS["one and two layers, flip"], 512, lambda: None),
    "one and two layers, Matérn": (MODELS["one and two layers, flip"], 512, matern),
    "three sizes and two layers": (Model("flip", (sized(4), ONE, sized(9), TWO)), 512, lambda: None),
}
SIZES = (50, 10, 100, 500)

images = cache(read)


@dataclass(frozen=True)
class Few(harness.Run):
    """Models of a subset with ``each`` images of every class; ``seed`` chooses them."""

    folder: str
    each: int
    seed: int = 0
    num_test: int = 10_000
    patches: int = 1024  # of a dictionary, at most
    steps: int = 80
    network_steps: int = 400

    def name(self) -> str:
        return harness.slug("few-photographs", self.each, self.seed)

    def measure(self, device: str) -> Record:
        x, y = images(Path(self.folder), "train", 50_000)
        order = np.random.default_rng(self.seed).permutation(len(x))
        rows = np.concatenate([order[y[order] == label][: self.each] for label in np.unique(y)])
        x, y = x[rows], y[rows]
        found, models = {}, {}
        begin = time.perf_counter()
        learner = Photographs(self.folder, self.seed)
        for name, (one, patches, kernel) in KINDS.items():
            seen = feature_map(one, min(patches, self.patches))
            models[name], found[name] = learner.fitted(one.orbit, seen, x, y, device, kernel(), max_steps=self.steps)
        chosen = max(KINDS, key=lambda name: found[name]["evidence"]["value"])
        seconds = time.perf_counter() - begin
        x_test, y_test = images(Path(self.folder), "test", self.num_test)
        labels = np.searchsorted(models[chosen].classes_, y_test)
        scores = self.scores(models[chosen].predict_proba(x_test), labels)
        begin = time.perf_counter()
        y = np.searchsorted(models[chosen].classes_, y)
        probs = network(x, y, x_test, self.network_steps, self.seed, device, augment=augmented, mirrored=True)
        rival = self.scores(probs, labels)
        nats = {name: found[name]["evidence"]["value"] for name in KINDS}
        errors = f"{scores['error_rate']:.4f}, network {rival['error_rate']:.4f}"
        say(f"{self.each} of each, seed {self.seed}: {errors}; {nats}")
        data = {"name": "CIFAR-10", "train": len(y), "test": len(y_test)}
        times = {"gp": seconds, "network": time.perf_counter() - begin}
        return {"data": data, "chosen": chosen, "nats": nats, "metrics": scores, "network": rival, "seconds": times}


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
    sizes = sorted({record["settings"]["each"] for record in records})
    each = {size: [record for record in records if record["settings"]["each"] == size] for size in sizes}
    kinds = ("metrics", "network")
    return {
        size: tuple(np.array([1 - record[kind]["error_rate"] for record in of]) for kind in kinds)  # type: ignore[misc]
        for size, of in each.items()
    }


def table(records: Records) -> str:
    """Accuracies with standard errors over subsets."""
    cells = []
    for size, found in accuracies(records).items():
        means = [f"{100 * a.mean():.1f} ± {100 * a.std(ddof=min(1, len(a) - 1)) / len(a) ** 0.5:.1f} %" for a in found]
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
    """All subsets, those that a claim is about first."""
    quick = {"num_test": 100, "patches": 16, "steps": 3, "network_steps": 5} if options.quick else {}
    sizes = (2,) if options.quick else SIZES
    return [Few(str(options.folder), each, seed, **quick) for each in sizes for seed in range(options.seeds)]


EXPERIMENT = harness.Experiment(
    "few_photographs",
    __doc__,
    plan,
    table,
    check,
    seeds=5,
    options={"--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of the images, as .npz files"}},
)
