"""Policies of augmentation learned from images and labels by the evidence, and draws of them.

As ``orbitgp advise`` does, each family is compared with none. A *product* of those that are supported grows from the
best one: the next best is appended, and stays if the evidence of both together is higher. A *mixture* is no product,
and has nothing more to learn: each image is changed by one of all supported families, chosen as often as its nats over
none say. For time's sake, the constants of oriented gradients are learned without an orbit first, and then stay.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from math import log, prod

import numpy as np
import torch
from torch import Tensor

from experiments.harness import Record, Settings
from orbitgp import InvariantGPClassifier, compare
from orbitgp.comparison.verdict import Difference
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits import FiniteOrbit, Identity, Orbit
from orbitgp.orbits.base import Composition
from orbitgp.orbits.images.deformation import SmoothField
from orbitgp.orbits.ranges import Range, reflected

WITHOUT_RANGES = ("none", "flip", "flip(False, True)")
_DRAWS = 8
_OF_FAMILIES = 0.7  # of the time: what families take before products begin
_LEAST_SECONDS = 1.0  # in which a product can be learned


def advised(
    x: np.ndarray, y: np.ndarray, families: Sequence[str], seconds: float, seed: int
) -> tuple[Orbit, dict[str, Orbit], Record]:
    """The product that the evidence chooses, all supported families, and what was found, in about so many seconds."""
    settings: Settings = {"likelihood": "gaussian", "random_state": seed, "num_samples": _DRAWS, "verbose": False}
    begin = time.perf_counter()
    plain = InvariantGPClassifier(None, feature_map=OrientedGradients(), max_seconds=seconds / 8, **settings).fit(x, y)
    (gradients,) = [part for part in plain.model_.kernel.modules() if isinstance(part, OrientedGradients)]
    settings["feature_map"] = deepcopy(gradients).requires_grad_(False)
    ranges = sum(family not in WITHOUT_RANGES for family in families)  # the others take little
    each = (_OF_FAMILIES * seconds - (time.perf_counter() - begin)) / ranges
    named = {family: family for family in families}
    ranking = compare(x, y, named, n_jobs=1, refine_seconds=0.0, max_seconds=each, **settings)
    standings = {standing.name: standing for standing in ranking.standings}
    none = standings[families[0]]
    nats = {name: standing.value - none.value for name, standing in standings.items()}
    better = [name for name in named if nats[name] > 0 and Difference(standings[name], none).certain]
    supported = sorted(better, key=nats.__getitem__, reverse=True)
    parts = {name: ranking.models[name].orbit_ for name in supported}
    chosen, orbit = supported[:1], next(iter(parts.values()), Identity())
    for number, name in enumerate(supported[1:], 1):
        left = (seconds - (time.perf_counter() - begin)) / (len(supported) - number)
        if left < _LEAST_SECONDS:
            break
        longer = [*chosen, name]
        elements = prod(part.size for part in map(parts.__getitem__, longer) if isinstance(part, FiniteOrbit))
        settings |= {"num_samples": max(2, _DRAWS // elements), "max_seconds": left}
        both = deepcopy(orbit) * deepcopy(parts[name])
        model = InvariantGPClassifier(both, **settings).fit(x, y)
        nats[" * ".join(longer)] = model.evidence_.value - none.value
        if nats[" * ".join(longer)] > nats[" * ".join(chosen)]:
            chosen, orbit = longer, model.orbit_
    ends = {name: part.describe().to_dict() for name, part in parts.items()}
    said = {"nats": nats, "supported": ends, "chosen": chosen, "seconds": time.perf_counter() - begin}
    return orbit, parts, said


def smaller(images: np.ndarray, factor: int) -> np.ndarray:
    """Means of squares of pixels."""
    height, width = (side // factor for side in images.shape[-2:])
    return images.reshape(*images.shape[:-2], height, factor, width, factor).mean((-3, -1), dtype=np.float32)


@torch.no_grad()
def enlarged(orbit: Orbit, factor: int) -> Orbit:
    """The same for images with so many times more pixels along a side."""
    larger = deepcopy(orbit)
    for part in larger.modules():
        if isinstance(part, Range) and part.unit.sign == "px":
            part.half_width.mul_(factor)
        elif isinstance(part, SmoothField):
            part.amplitude.mul_(factor)
            part.log_smoothness.add_(log(factor))
            part.finest, part.coarsest = factor * part.finest, factor * part.coarsest
    return larger


def halved(orbit: Orbit) -> Orbit:
    """The same with half of each learned range; finite orbits stay as they are."""
    narrow = deepcopy(orbit)
    with torch.no_grad():
        for reach, widest in zip(narrow.reaches(), narrow.widest_reaches(), strict=True):
            reach.copy_(reflected(reach, widest) / 2)
    return narrow


@torch.no_grad()
def drawn(orbit: Orbit, images: Tensor) -> Tensor:
    """One draw of the orbit of each image; elements as often as their weights say."""
    if images.shape[1] == 1:  # orbits take grey images without channels
        return drawn(orbit, images[:, 0])[:, None]
    if isinstance(orbit, Composition):
        for part in orbit.parts:
            images = drawn(part, images)
        return images
    if isinstance(orbit, FiniteOrbit):
        weights = orbit.weights()
        chances = torch.ones(orbit.size) if weights is None else weights
        return orbit.select(images, torch.multinomial(chances, len(images), replacement=True)[:, None])[:, 0]
    u = torch.rand(len(images), 1, orbit.draws_for(images.shape[1:]))
    return orbit.transform(images, u)[:, 0].to(images)


def mixed(orbits: Sequence[Orbit], shares: Sequence[float], images: Tensor) -> Tensor:
    """One draw of one orbit of each image, which is chosen as often as these shares of their sum say."""
    if not orbits:
        return images
    images, chosen = images.clone(), torch.multinomial(torch.tensor(shares), len(images), replacement=True)
    for number in chosen.unique().tolist():
        rows = chosen == number
        images[rows] = drawn(orbits[number], images[rows])
    return images
