"""A small network on five small sets of images: no augmentation, two usual recipes, and what the evidence learned.

The recipe of the network is fixed: three pairs of convolutions, 240 steps of 64 images. The sets are the embedded
digits, MNIST, the same turned by up to 60°, CIFAR-10, and generated stained cells; the seed chooses images, starts and
draws. RandAugment and TrivialAugment are as libraries have them (:mod:`experiments.policies`).

*Learned* comes from the training images alone (:mod:`experiments.learned_policy`): the product that has most evidence,
of the families that ``orbitgp advise`` compares, and for cells of the stain, too. *Learned, halved* draws from half of
each learned range, while mirror images keep their weight: a range says how far an image may go and keep its label, and
not how far images went. *Learned, mixture* changes each image by one of all families that are supported, chosen as
often as its nats over none say, within half of the range that this family has alone. So there is variety where many
families are supported, and the evidence of some model supports each draw.

``python -m experiments networks --folder data/cifar10 --jobs 14``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from experiments import harness
from experiments.cifar import read, say
from experiments.few_photographs import network
from experiments.harness import Claims, Record, Records, Settings
from experiments.learned_policy import advised, drawn, enlarged, halved, mixed, smaller
from experiments.policies import rand_augment, trivial_augment
from orbitgp.cli.begin import OF_PICTURES
from orbitgp.datasets import Dataset, DatasetError, digits, mnist

DEFAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda images: images,
    "RandAugment": rand_augment,
    "TrivialAugment": trivial_augment,
}
LEARNED = ("learned", "learned, halved", "learned, mixture")
POLICIES = (*DEFAULTS, *LEARNED)
SIZES = {  # training images and test images
    "MNIST": (300, 2000),
    "MNIST, turned": (300, 2000),
    "CIFAR-10": (1000, 2000),
    "stained cells": (200, 1000),
    "embedded digits": (200, 1597),
}
QUICK: Settings = {"num_train": 60, "num_test": 100, "rows": 40, "seconds": 12.0, "steps": 5}
FAMILIES = {3: ("saturation", "hue"), 2: ()}  # beside those of all pictures, by the dimensions of an image
DYES = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])
PLANTED = 2.0  # each dye of each cell times or over up to this factor


def cells(count: int, seed: int, side: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Purple nuclei in pink cells (N, 3, H, W); the class is whether the nucleus is of medium size."""
    rng, y = np.random.default_rng(seed), np.arange(count) % 2
    radius = 3.4 + 1.3 * np.where(y, 0, rng.choice([-1, 1], count)) + 0.3 * rng.normal(size=count)
    place = np.arange(side) - (side - 1) / 2
    distance = np.hypot(place[:, None], place)
    nucleus = 1 / (1 + np.exp(1.25 * (distance - radius[:, None, None])))
    body = np.broadcast_to(0.15 + 0.35 / (1 + np.exp(1.25 * (distance - 6.4))), nucleus.shape)
    amounts = PLANTED ** rng.uniform(-1, 1, (count, 2, 1, 1)) * np.stack([nucleus, body], 1)
    x = np.exp(-np.einsum("nihw,ic->nchw", amounts, DYES / np.linalg.norm(DYES, axis=1, keepdims=True)))
    return (x + 0.05 * rng.normal(size=x.shape)).clip(0, 1).astype(np.float32), y


def images_of(dataset: str, folder: Path, num_train: int, num_test: int, seed: int) -> Dataset:
    """Training images that the seed chooses, and test images."""
    if dataset == "stained cells":
        (x, y), (x_test, y_test) = cells(num_train, 2 * seed), cells(num_test, 2 * seed + 1)
        return Dataset(x, y, x_test, y_test, name=dataset, source="a seed")
    rng = np.random.default_rng(seed)
    if dataset == "embedded digits":
        data = digits()
        x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
        train, test = np.split(rng.permutation(len(x)), [num_train])
        return replace(data, x_train=x[train], y_train=y[train], x_test=x[test][:num_test], y_test=y[test][:num_test])
    if dataset == "CIFAR-10":
        (x, y), (x_test, y_test) = read(folder, "train", 10_000), read(folder, "test", num_test)
        whole = Dataset(x, y.astype(np.int64), x_test, y_test, name=dataset, source="its authors")
    else:
        whole = mnist(download=False)
    data = harness.cut(whole, rng.permutation(len(whole.y_train))[:num_train], slice(num_test))
    return harness.turned(data, 60, seed) if dataset == "MNIST, turned" else data


@dataclass(frozen=True)
class Networks(harness.Run):
    """Networks trained with some of the policies on the same images; ``seed`` chooses these."""

    dataset: str
    policies: tuple[str, ...]
    num_train: int
    num_test: int
    seed: int = 0
    folder: str = ""
    rows: int = 200  # that augmentation is learned from
    seconds: float = 120.0  # that learning may take
    steps: int = 240

    def name(self) -> str:
        return harness.slug("networks", self.dataset, self.policies[0], self.seed)

    def measure(self, device: str) -> Record:
        data = images_of(self.dataset, Path(self.folder), self.num_train, self.num_test, self.seed)
        policies, found = dict(DEFAULTS), None
        if LEARNED[0] in self.policies:
            shape = data.x_train.shape[1:]
            families = [*OF_PICTURES, *FAMILIES[len(shape)], *(["stain"] if self.dataset == "stained cells" else [])]
            x, y = data.x_train[: self.rows], data.y_train[: self.rows]
            factor = 2 if min(shape[-2:]) >= 28 else 1
            orbit, parts, found = advised(smaller(x, factor), y, families, self.seconds, self.seed)
            orbit = enlarged(orbit, factor)
            found["orbit"] = orbit.describe().to_dict()
            halves = [halved(enlarged(part, factor)) for part in parts.values()]
            mixture = partial(mixed, halves, [found["nats"][name] for name in parts])
            ways = (partial(drawn, orbit), partial(drawn, halved(orbit)), mixture)
            policies |= dict(zip(LEARNED, ways, strict=True))
            say(f"{self.dataset}, seed {self.seed}: {found}")
        x, x_test = (x[:, None] if x.ndim == 3 else x for x in (data.x_train, data.x_test))
        how: Settings = {"widths": (16, 32, 64), "batch": 64}
        accuracies, seconds = {}, {}
        for policy in self.policies:
            begin = time.process_time()
            probs = network(x, data.y_train, x_test, self.steps, self.seed, augment=policies[policy], **how)
            accuracies[policy] = float((probs.argmax(1) == data.y_test).mean())
            seconds[policy] = time.process_time() - begin
            took = f"{seconds[policy]:.1f} s of a core"
            say(f"{self.dataset}, seed {self.seed}, {policy}: {100 * accuracies[policy]:.2f} %, {took}")
        counts = {"train": len(data.y_train), "test": len(data.y_test)}
        return {"data": counts, "accuracy": accuracies, "seconds": seconds, "advice": found}


def accuracies(records: Records) -> dict[str, dict[str, list[float]]]:
    """Of each set and policy, for all seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        policies = found.setdefault(record["settings"]["dataset"], {})
        for policy, accuracy in record["accuracy"].items():
            policies.setdefault(policy, []).append(accuracy)
    return found


def table(records: Records) -> str:
    """Means with standard errors over seeds, and what the first seed has learned."""
    learned = {r["settings"]["dataset"]: r["advice"] for r in reversed(records) if r["advice"]}
    rows = []
    for dataset, found in sorted(accuracies(records).items(), key=lambda item: list(SIZES).index(item[0])):
        means = {policy: harness.mean([100 * a for a in seeds]) for policy, seeds in found.items()}
        cells = [harness.with_error(*means[policy], digits=1) + " %" if policy in means else "" for policy in POLICIES]
        rows.append([dataset, *cells, *(said(learned[dataset]) if dataset in learned else ("", ""))])
    return harness.markdown(["images", *POLICIES, "learned ranges", "supported (nats)"], rows)


def said(advice: Record) -> tuple[str, str]:
    """The ranges of the product, and by how many nats each family is supported."""
    nats = sorted(((advice["nats"][name], name) for name in advice["supported"]), reverse=True)
    return harness.reach(advice["orbit"]), "; ".join(f"{name} {value:,.0f}" for value, name in nats)


def check(records: Records) -> Claims:
    """Each way to use what was learned: better than none on all sets, and than both defaults on all but one."""
    claims = {}
    for policy in LEARNED:
        sets = [found for found in accuracies(records).values() if {policy, *DEFAULTS} <= set(found)]
        beaten = [[np.mean(found[policy]) > np.mean(found[other]) for other in DEFAULTS] for found in sets]
        over_none, over_both = sum(row[0] for row in beaten), sum(all(row[1:]) for row in beaten)
        if sets:
            claims[f"{policy}: better than none on all {len(sets)} sets"] = bool(over_none == len(sets))
            claims[f"{policy}: better than both defaults on all sets but one"] = bool(over_both >= len(sets) - 1)
    return claims


def plan(options: argparse.Namespace) -> list[Networks]:
    """All sets that are there, those that take longest first; a seed after the other."""
    sets, settings = dict(SIZES), QUICK if options.quick else {}
    learning = {"seconds": options.seconds} | settings  # defaults do not depend on it
    try:
        mnist(download=False)
    except DatasetError:
        say("MNIST is left out: its files are not there (ORBITGP_DATA names their folder).")
        sets = {name: sizes for name, sizes in sets.items() if not name.startswith("MNIST")}
    if not list(options.folder.glob("*.npz")):
        say(f"CIFAR-10 is left out: there are no .npz files in {options.folder}.")
        del sets["CIFAR-10"]
    return [
        Networks(
            dataset,
            policies,
            seed=seed,
            folder=str(options.folder),
            **(dict(zip(("num_train", "num_test"), sets[dataset], strict=True)) | of_these),
        )
        for seed in range(options.seeds)
        for policies, of_these in ((LEARNED, learning), (tuple(DEFAULTS), settings))
        for dataset in options.sets
        if dataset in sets
    ]


EXPERIMENT = harness.Experiment(
    "networks",
    __doc__,
    plan,
    table,
    check,
    seeds=5,
    options={
        "--folder": {"type": Path, "default": Path("data/cifar10"), "help": "of CIFAR-10, as .npz files"},
        "--seconds": {"type": float, "default": Networks.seconds, "help": "that learning of one set may take"},
        "--sets": {"nargs": "+", "choices": list(SIZES), "default": list(SIZES), "help": "only some of the sets"},
    },
    on_gpu=False,
)
