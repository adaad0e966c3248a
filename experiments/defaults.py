"""Defaults on the data of other experiments: nothing is set but the orbit, what the kernel sees and the likelihood.

*sizes*: 312 to 60,000 digits of MNIST, the same ones that :mod:`experiments.small_data` takes for sparse models with
settings of their own. *reduced*: as many digits as USPS has, and as large, like :mod:`experiments.reduced_mnist`.
*rotated*: 12,000 digits (or ``--sizes``) at any angle, as in :mod:`experiments.rotated_mnist`: orbits that are learned,
from near and far, must end with at least the evidence of the right answer, rotations fixed at ±180°. *few rotated*: 150
such digits, others for each seed, where the evidence is known to a few nats; every orbit that contains rotations, from
three starts, for pixels and for gradients. *maps*: 300 embedded digits and 300 of MNIST, others for each seed, seen as
oriented gradients and as patches: the evidence must choose what has no more errors. *less time*, of all but the last
two: the same in the time that sparse models with settings of their own took, before exact inference was the default.

Sizes and rotated digits have the Gaussian likelihood, like those experiments, so that the evidence compares; reduced
digits have it, too, and then the default one.

``python -m experiments defaults --device cuda --jobs 3``
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from experiments import harness
from experiments.default_fit import DefaultFit
from experiments.harness import Claims, Record, Records, Settings
from experiments.networks import images_of
from experiments.reduced_mnist import DIRICHLET, OTHERS, ReducedMNIST, of_test_digits, own_error
from experiments.reduced_mnist import FULL_SIZE as REDUCED
from experiments.rotated_mnist import FIXED, RotatedMNIST, allowance, rotated_mnist
from experiments.small_data import SmallData
from experiments.views import FRAMED
from orbitgp.datasets import Dataset

LESS = ", less time"
PARTS = ("sizes", "sizes" + LESS, "reduced", "reduced" + LESS, "rotated", "rotated" + LESS, "few rotated", "maps")
SIZES = (312, 1250, 5000, 20_000, 60_000)
OF_TIME = 0.9  # of what a sparse model took: the limit
QUICK_SIZES, QUICK_SECONDS = (60, 120), 4.0
GRADIENTS = "learned floor"
OF_SIZES = {"none": ("none", "pixels"), "affine": ("affine", "pixels"), "affine, gradients": ("affine", GRADIENTS)}
FRAMES = {"affine, framed gradients": ("affine", FRAMED)}
OF_REDUCED = {name + likelihood: seen for likelihood in ("", DIRICHLET) for name, seen in (OF_SIZES | FRAMES).items()}
OF_ROTATED = {
    "none": "none",
    FIXED: "rotation(180, learn=False)",
    "rotation, learned from 5°": "rotation(5)",
    "rotation, learned from 45°": "rotation(45)",
    "affine, learned from 10°": "affine(angle=10)",
    "rotation * deformation": "rotation(10)*deformation",
}
OF_PART = {
    "sizes": OF_SIZES,
    "reduced": OF_REDUCED,
    "rotated": {m: (orbit, "pixels") for m, orbit in OF_ROTATED.items()},
}
ALL_DIGITS = 70_000  # of MNIST, from which rotated ones are drawn
FEW, FEW_STARTS = 150, (5, 45, 120)  # rotated digits, and degrees that orbits are learned from
CONTAIN_ROTATIONS = {
    "rotation": "rotation({})",
    "affine": "affine(angle={})",
    "rotation * deformation": "rotation({})*deformation",
}
OF_FEW = {FIXED: OF_ROTATED[FIXED]} | {
    f"{name}, learned from {start}°": orbit.format(start)
    for name, orbit in CONTAIN_ROTATIONS.items()
    for start in FEW_STARTS
}
OF_MAPS = {  # of whose digits, and what the kernel sees
    f"{name}, {dataset}": (dataset, seen)
    for dataset in ("embedded digits", "MNIST")
    for name, seen in {"gradients": GRADIENTS, "patches": "patches"}.items()
}
MAPPED = 300  # digits
BEFORE = {  # sparse models of the same digits, before exact inference was the default
    "sizes": harness.RESULTS / "small_data.jsonl",
    "reduced": harness.RESULTS / "reduced_mnist.jsonl",
    "rotated": harness.RESULTS / "rotated_mnist.jsonl",
}


@dataclass(frozen=True)
class Default(DefaultFit):
    """One classifier with the defaults, of the data of another experiment."""

    likelihood: str = "gaussian"
    num_train: int = 60_000
    num_test: int = 10_000
    part: str = "sizes"

    def name(self) -> str:
        return harness.slug(self.part, self.num_train, self.model, self.seed)

    def data(self) -> Dataset:
        """The data of the part."""
        size: Settings = {"num_train": self.num_train, "num_test": self.num_test, "seed": self.seed}
        if self.part.startswith("rotated"):
            return RotatedMNIST(self.model, **size).data()
        if self.part == "few rotated":
            return rotated_mnist(num_train=self.num_train, num_test=self.num_test, seed=self.seed)
        if self.part == "maps":
            return images_of(OF_MAPS[self.model][0], Path(), self.num_train, self.num_test, self.seed)
        return (ReducedMNIST if self.part.startswith("reduced") else SmallData)(self.model, **size).data()

    def scores(self, probs: np.ndarray, labels: np.ndarray) -> Record:
        found = super().scores(probs, labels)
        return found | of_test_digits(probs, labels) if self.part.startswith("reduced") else found


def plan(options: argparse.Namespace) -> list[Default]:
    """The parts that were asked for; small sizes first."""
    runs: list[Default] = []
    seeds = range(options.seeds)
    if "sizes" in options.parts:
        sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
        runs += [Default(m, *OF_SIZES[m], num_train=n, seed=s) for n in sizes for s in seeds for m in OF_SIZES]
    if "reduced" in options.parts:
        reduced: Settings = {
            "part": "reduced",
            "num_train": QUICK_SIZES[0] if options.quick else REDUCED,
            "num_test": OTHERS,
        }
        runs += [Default(m, *OF_REDUCED[m], _likelihood(m), seed=s, **reduced) for s in seeds for m in OF_REDUCED]
    if "rotated" in options.parts:
        sizes = options.sizes or ((100,) if options.quick else (12_000,))
        rotated = [partial(Default, part="rotated", num_train=n, num_test=min(50_000, ALL_DIGITS - n)) for n in sizes]
        runs += [of_size(m, orbit, seed=s) for of_size in rotated for s in seeds for m, orbit in OF_ROTATED.items()]
    if not options.quick:
        for part in (part for part in BEFORE if part + LESS in options.parts):
            found = [(n, m, seeds) for (n, m), seeds in before(part).items() if n in (options.sizes or (n,))]
            runs += [timed(part, m, sparse[0], s) for _, m, sparse in found for s in seeds if s in sparse]
    if "few rotated" in options.parts:
        few: Settings = {"part": "few rotated", "num_train": 100 if options.quick else FEW, "num_test": 1000}
        views = {"": "pixels", ", gradients": GRADIENTS}
        runs += [
            Default(f"{m}{title}", orbit, view, seed=s, **few)
            for s in seeds
            for title, view in views.items()
            for m, orbit in OF_FEW.items()
        ]
    if "maps" in options.parts:
        size = QUICK_SIZES[0] if options.quick else MAPPED
        runs += [
            Default(m, "none", seen, seed=s, part="maps", num_train=size, num_test=2000)
            for s in seeds
            for m, (_, seen) in OF_MAPS.items()
        ]
    if options.models:
        runs = [run for run in runs if run.model in options.models]
    return [replace(run, num_test=500, max_seconds=QUICK_SECONDS) for run in runs] if options.quick else runs


def timed(part: str, model: str, sparse: Record, seed: int) -> Default:
    """The same orbit and as many digits as a sparse model had, in its time. A fit ends about when its limit is met."""
    data, seconds = sparse["data"], OF_TIME * sparse["seconds"]["fit"]
    size: Settings = {"num_train": data["train"], "num_test": data["test"]}
    return Default(model, *OF_PART[part][model], _likelihood(model), seconds, seed, part=part + LESS, **size)


def _likelihood(model: str) -> str:
    return "auto" if model.endswith(DIRICHLET) else "gaussian"


def before(part: str) -> dict[tuple[int, str], dict[int, Record]]:
    """The sparse models that stand beside defaults, by number of digits and the name of these: a record for each
    seed."""
    part = part.removesuffix(LESS)
    found: dict[tuple[int, str], dict[int, Record]] = {}
    for record in harness.load(BEFORE[part]).values():
        for model in OF_PART[part]:
            # Sparse models with gradients had learned where their ranges lie: they enlarged all digits, as a frame
            # does.
            if record["settings"]["model"] == model.replace("framed ", ""):
                found.setdefault((record["data"]["train"], model), {})[record["settings"]["seed"]] = record
    return found


def beside(group: list[Record], part: str) -> harness.Row | None:
    """The sparse models of the same digits as these of one model; None where there are none."""
    settings = group[0]["settings"]
    seeds = before(part).get((settings["num_train"], settings["model"]), {})
    found = [seeds[record["settings"]["seed"]] for record in group if record["settings"]["seed"] in seeds]
    return harness.rows(found)[0] if len(found) == len(group) else None


def of_part(records: Records, part: str) -> list[Record]:
    """The records of one part of the experiment."""
    return [record for record in records if record["settings"]["part"] == part]


def behind(records: Records) -> dict[str, list[tuple[float, float]]]:
    """By how many nats each learned orbit is behind rotations fixed at ±180°, and how many are allowed, for each seed.

    With a limit of time, learned orbits need not be at their top.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    free = [record for record in records if not record["settings"]["part"].endswith(LESS)]
    for (part, size, _, _), group in harness.grouped(free, "part", "num_train", "view", "seed").items():
        rows = harness.rows(group)
        fixed = next((row for row in rows if row.model.startswith(FIXED)), None)
        for row in rows:
            if fixed is not None and row is not fixed and row.model != "none":
                name = f"{part}, {size:,} digits: {row.model}" if part == "rotated" else f"{part}: {row.model}"
                found.setdefault(name, []).append((fixed.evidence - row.evidence, allowance(row, fixed)))
    return found


def check(records: Records) -> Claims:
    """Learned orbits have at least the evidence of the fixed one; the evidence picks a model with less error than
    none."""
    claims: Claims = {}
    for (size,), group in harness.grouped(of_part(records, "sizes"), "num_train").items():
        found = {row.model: row for row in harness.rows(group)}
        picked = max(found.values(), key=lambda row: row.evidence)
        if "none" in found and len(found) > 1:
            name = f"{size:,} digits: the evidence picks {picked.model}, with less error than none"
            claims[name] = picked.error < found["none"].error
    for dataset in sorted({OF_MAPS[record["settings"]["model"]][0] for record in of_part(records, "maps")}):
        claims |= chosen_map([r for r in of_part(records, "maps") if OF_MAPS[r["settings"]["model"]][0] == dataset])
    for part in BEFORE:
        claims |= in_less_time(of_part(records, part + LESS), part)
    for name, seeds in behind(records).items():
        nats, allowed = max(seeds, key=lambda each: each[0] - each[1])
        claims[f"{name}: at least the evidence of {FIXED}, less {allowed:.1f}"] = nats <= allowed
    return claims


def chosen_map(records: Records) -> Claims:
    """What the evidence chooses for g to see has no more errors than the other, but for a standard error of the
    difference."""
    picked, *others = sorted(harness.rows(records), key=lambda row: -row.evidence)
    allowed = [other.error + float(np.hypot(picked.error_stderr, other.error_stderr)) for other in others]
    fewer = all(picked.error <= most for most in allowed)
    return {f"the evidence picks {picked.model}, with no more errors": fewer} if others else {}


def line(group: list[Record]) -> list[str]:
    """The cells of one model."""
    found, first = harness.rows(group)[0], group[0]
    error, evidence = harness.error_and_evidence(found)
    if first["settings"]["part"].startswith("reduced"):
        error += f" ({own_error(group)} of MNIST's test digits)"
    draws = sorted({record["evidence"]["num_samples"] for record in group if record["evidence"].get("num_samples")})
    return [
        f"{found.train:,}",
        found.model,
        error,
        f"{found.nll:.4f}",
        evidence + (f" (S = {', '.join(map(str, draws))})" if draws else ""),
        harness.reach(found.orbit),
        f"{found.seconds:.0f} + {first['seconds']['predict']:.0f}",
    ]


def in_less_time(records: Records, part: str) -> Claims:
    """No more errors and seconds than the sparse models before, and no less evidence; a claim names where it does not
    hold.

    Where there are several seeds, their means are compared, and errors to a standard error of the difference.
    """
    wrong: dict[str, list[str]] = {"no more errors": [], "no less evidence": [], "no more seconds": []}
    for (size, model), group in harness.grouped(records, "num_train", "model").items():
        new, old = harness.rows(group)[0], beside(group, part)
        assert old is not None, f"no sparse model of the same seeds stands beside {model} of {size:,}"
        allowed = float(np.hypot(new.error_stderr, old.error_stderr)) if new.seeds > 1 else 0.0
        holds = (new.error <= old.error + allowed, new.evidence >= old.evidence, new.seconds <= old.seconds)
        for found, held in zip(wrong.values(), holds, strict=True):
            found += [] if held else [f"{model} of {size:,}"]
    named = {f"{part} in less time, {claim} than sparse before": found for claim, found in wrong.items() if records}
    return {claim + (f"; not {', '.join(found)}" if found else ""): not found for claim, found in named.items()}


def words(sparse: harness.Row) -> str:
    """Error, bound and seconds of a sparse model."""
    return ", ".join([*harness.error_and_evidence(sparse), f"{sparse.seconds:.0f} s"])


def few_rotated(records: Records) -> str:
    """One line a model: what the seeds have in common, and by how many nats each is ahead of the fixed orbit."""
    ahead = {name.removeprefix("few rotated: "): seeds for name, seeds in behind(records).items()}
    cells = [
        [
            row.model,
            f"{100 * row.error:.1f} %",
            f"{row.evidence:,.1f}",
            ", ".join(f"{-nats:+,.1f} ± {allowed / 3:.1f}" for nats, allowed in ahead.get(row.model, [])),
            harness.reach(row.orbit),
            f"{row.seconds:.0f}",
        ]
        for row in harness.rows(records)
    ]
    ahead_of = "ahead of the fixed one (nats), each seed"
    return harness.markdown(
        ["model", "test error", "evidence (nats)", ahead_of, "learned (first seed)", "seconds"], cells
    )


def table(records: Records) -> str:
    """A table for each part; the sparse models stand beside those of the same digits."""
    tables = []
    for part in PARTS:
        if part == "few rotated" and of_part(records, part):
            tables.append(few_rotated(of_part(records, part)))
            continue
        found = sorted(of_part(records, part), key=lambda record: record["settings"]["num_train"])
        groups = harness.grouped(found, "num_train", "model").values()
        titles = ["digits", "model", "test error", "NLL", "evidence (nats)", "learned", "seconds"]
        cells = [line(group) for group in groups]
        if part.removesuffix(LESS) in BEFORE:
            titles.append("sparse, before")
            for cell, group in zip(cells, groups, strict=True):
                sparse = beside(group, part)
                cell.append("" if sparse is None else words(sparse))
        tables += [harness.markdown(titles, cells)] if found else []
    return "\n\n".join(tables)


EXPERIMENT = harness.Experiment(
    "defaults",
    __doc__,
    plan,
    table,
    check,
    seeds=1,
    options={
        "--parts": {"nargs": "+", "choices": PARTS, "default": PARTS, "help": "only some of the parts"},
        "--sizes": {"type": int, "nargs": "+", "help": "numbers of digits"},
        "--models": {"nargs": "+", "help": "only some of the models"},
    },
)
