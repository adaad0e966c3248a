"""Verdicts against the truth: is ``compare`` ever certain and wrong, and how often can it tell?

200 small problems come from a seed: images and vectors, regression and classes, with a symmetry that is there, is not,
or is in part. A third of them are near ties: few rows, much noise, a weak symmetry. Six more are made by hand, the
shifted digits of the first page among them. Each has two or three candidate orbits, none included.

The truth is the best exact evidence of each candidate over ten random starts: the orbit enumerated, or ten climbs with
few fixed draws, and the best two again with many, scored on fresh ones. ``compare`` then gets the data, with its
defaults and with ``inference="sparse"``. It is *right* if it is certain of the best candidate, *wrong* if it is certain
that another is better, and *cannot tell* if the best candidate is one of several.

``python -m experiments verdicts --jobs 16``, on one thread each. ``--some 7`` takes every seventh problem.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped

import orbitgp
from experiments import harness
from experiments.harness import Claims, Record, Records, Settings
from orbitgp.datasets import digits
from orbitgp.estimators.initialise import initial_kernel
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Dirichlet, Gaussian, GaussianIndicators, Likelihood
from orbitgp.likelihoods.classification import Classification
from orbitgp.orbits import (
    FiniteOrbit,
    Flip,
    GaussianNoise,
    Identity,
    Orbit,
    Permutation,
    Rotate90,
    Rotation,
    Scale,
    Translation,
)
from orbitgp.planning.rungs import Rung
from orbitgp.training.ladder import Ladder

COUNT = 200
MODES = ("auto", "sparse")
STARTS, FEW_DRAWS, MANY_DRAWS, AGAIN = 10, 8, 64, 2  # climbs of the truth, their draws, and how many climb again
FRESH_DRAWS = 256  # with which the top of an infinite orbit is scored
GAPS = {"below 5": (0.0, 5.0), "5 to 20": (5.0, 20.0), "above 20": (20.0, np.inf)}  # nats
ENOUGH = 0.8  # of the problems with a gap above 20 nats

Inputs = Float[np.ndarray, "rows *features"]
Candidates = dict[str, Orbit]
State = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Problem(NamedTuple):
    """Data, candidate orbits by name, and the likelihood of a classifier (None: regression)."""

    title: str
    x: Inputs
    y: Shaped[np.ndarray, " rows"]
    orbits: Candidates
    likelihood: str | None = None


class Family(NamedTuple):
    """Inputs, the orbit that is planted, and the candidates, each from a generator of random numbers."""

    images: bool
    sizes: tuple[int, int]  # the side of an image, or the length of a vector
    planted: Callable[[np.random.Generator, int], Orbit]
    others: Callable[[int], Candidates]
    flat: bool = False


def rolls(size: int, reach: int) -> Permutation:
    """Cyclic shifts of a signal by up to ``reach`` places."""
    return Permutation([np.roll(np.arange(size), by).tolist() for by in range(-reach, reach + 1)])


def image_rolls(side: int) -> Permutation:
    """The nine shifts of a flat image by up to one pixel; its border is empty, so nothing comes in on the other
    side."""
    index = np.arange(side * side).reshape(side, side)
    return Permutation([np.roll(index, (a, b), (0, 1)).ravel().tolist() for a in (-1, 0, 1) for b in (-1, 0, 1)])


def all_orders(size: int) -> Permutation:
    """The first three coordinates in every order."""
    return Permutation([[*order, *range(3, size)] for order in permutations(range(3))])


FAMILIES: dict[str, Family] = {
    "swap": Family(False, (2, 5), lambda _, d: Permutation.swap(0, 1), lambda d: {"noise": GaussianNoise(0.3)}),
    "orders": Family(False, (3, 5), lambda _, d: all_orders(d), lambda d: {"swap": Permutation.swap(0, 1)}),
    "cyclic": Family(
        False, (8, 12), lambda rng, d: rolls(d, int(rng.integers(1, 4))), lambda d: {"all": rolls(d, d // 2)}
    ),
    "noise": Family(False, (2, 4), lambda rng, _: GaussianNoise(rng.uniform(0.2, 1.0)), lambda d: {}),
    "shifts": Family(True, (6, 10), lambda _, side: image_rolls(side), lambda d: {}, flat=True),
    "flip": Family(True, (6, 10), lambda rng, _: Flip(), lambda d: {"quarter turns": Rotate90()}),
    "quarter": Family(True, (6, 8), lambda rng, _: Rotate90(), lambda d: {"rotation": Rotation()}),
    "rotation": Family(True, (6, 8), lambda rng, _: Rotation(rng.uniform(30.0, 180.0)), lambda d: {"flip": Flip()}),
    "scale": Family(True, (6, 8), lambda rng, _: Scale(rng.uniform(1.2, 1.8)), lambda d: {"quarter turns": Rotate90()}),
    "translation": Family(True, (6, 8), lambda rng, _: Translation(*rng.uniform(0.5, 1.5, 2)), lambda d: {}),
}
STARTING: dict[str, Callable[[], Orbit]] = {  # learned orbits start where their constructors do
    "noise": lambda: GaussianNoise(0.3),
    "rotation": Rotation,
    "scale": Scale,
    "translation": Translation,
}


def blobs(rng: np.random.Generator, rows: int, side: int) -> Inputs:
    """Images of three bright or dark spots, empty at the border."""
    grid = np.linspace(-1, 1, side)
    centres, weights = (
        rng.uniform(-0.5, 0.5, (rows, 3, 2)),
        rng.uniform(0.5, 1.5, (rows, 3)) * rng.choice([-1, 1], (rows, 3)),
    )
    across, down = ((grid - centres[:, :, i, None]) ** 2 for i in range(2))
    spots = np.exp(-(down[:, :, :, None] + across[:, :, None, :]) / 0.15)
    images = np.einsum("nk,nkij->nij", weights, spots)
    images[:, [0, -1]] = images[:, :, [0, -1]] = 0.0
    return images.astype(np.float32)


def random_functions(
    rng: np.random.Generator, dim: int, length: float, outputs: int
) -> Callable[[np.ndarray], np.ndarray]:
    """Draws of a Gaussian process with an RBF kernel, about: many random waves."""
    waves, phases = rng.normal(size=(dim, 500)) / length, rng.uniform(0, 2 * np.pi, 500)
    weights = rng.normal(size=(500, outputs)) * np.sqrt(2 / 500)
    return lambda x: np.cos(x @ waves + phases) @ weights


def generated(number: int) -> Problem:
    """One of the problems that come from a seed."""
    rng = np.random.default_rng([15, number])
    name = list(FAMILIES)[number % len(FAMILIES)]
    family = FAMILIES[name]
    symmetry = ("present", "absent", "partial")[number // len(FAMILIES) % 3]
    tie = rng.uniform() < 1 / 3
    classes = 3 if rng.uniform() < 0.4 else None
    most = 80 if name in STARTING or classes else 150  # the truth of these takes longest
    rows = int(rng.integers(40, 60) if tie else rng.integers(50, most + 1))
    noise = rng.uniform(0.6, 1.2) if tie else rng.uniform(0.03, 0.3)
    share = {"present": 1.0, "absent": 0.0, "partial": 0.6}[symmetry] * (rng.uniform(0.3, 0.7) if tie else 1.0)
    size = int(rng.integers(family.sizes[0], family.sizes[1] + 1))
    x = blobs(rng, rows, size) if family.images else rng.normal(size=(rows, size))
    x = x.reshape(rows, -1) if family.flat else x
    planted = family.planted(rng, size)
    flat = x.reshape(rows, -1).astype(float)
    length = float(np.median(np.linalg.norm(flat[:, None] - flat[None], axis=-1))) * rng.uniform(0.4, 1.0)
    g = random_functions(rng, flat.shape[1], length, classes or 1)
    values = (1 - share) * scaled(g(flat)) + share * scaled(averaged(g, planted, x))
    values = scaled(values) + noise * rng.normal(size=values.shape)
    y = values[:, 0] if classes is None else values.argmax(1)
    own = STARTING[name]() if name in STARTING else planted
    title = f"{name}, {symmetry}{', near tie' if tie else ''}, {rows} rows of {x.shape[1:]}, {classes or 'no'} classes"
    return Problem(
        title, x, y, {"none": Identity(), name: own, **family.others(size)}, "dirichlet" if classes else None
    )


def averaged(g: Callable[[np.ndarray], np.ndarray], orbit: Orbit, x: Inputs) -> np.ndarray:
    """The averages of g over the orbits of the rows."""
    with torch.no_grad():
        samples = None if isinstance(orbit, FiniteOrbit) else 256
        shared = orbit.to(torch.float64).shared_samples(torch.tensor(x, dtype=torch.float64), samples)
        points = shared.points[:, 0].flatten(2).numpy()
    return np.stack([g(row).mean(0) for row in points])


def rounded(nats: float | None) -> float | None:
    """To what a record needs."""
    return None if nats is None else round(nats, 3)


def scaled(values: np.ndarray) -> np.ndarray:
    """With unit variance in each column."""
    return (values - values.mean(0)) / values.std(0)


def by_hand() -> dict[str, Callable[[], Problem]]:
    """The shifted digits, and five more: finite and continuous orbits; a symmetry that is present, absent, partial."""
    return {
        "shifts of digits": shifts_of_digits,
        "turned digits": lambda: turned_digits(60.0),
        "upright digits": lambda: turned_digits(0.0),
        "phase": lambda: waves(full=True),
        "half a phase": lambda: waves(full=False),
        "parity": parity,
    }


def shifts_of_digits() -> Problem:
    """200 digits of 8 x 8 in an empty frame of 12 x 12: the nine shifts by one pixel, or none."""
    data = digits()
    x = np.pad(data.x_train[:200].reshape(-1, 8, 8), ((0, 0), (2, 2), (2, 2))).reshape(200, -1).astype(np.float32)
    orbits: Candidates = {"none": Identity(), "shifts": image_rolls(12)}
    return Problem("shifts of digits", x, data.y_train[:200], orbits, "gaussian")


def turned_digits(degrees: float) -> Problem:
    """100 digits, each turned at random within ± some degrees: rotation, quarter turns or none."""
    data = digits()
    x = torch.from_numpy(data.x_train[:100].reshape(-1, 8, 8)).float()
    if degrees:
        torch.manual_seed(0)
        x = Rotation(degrees).sample(x, 2, 2, "iid", torch.Generator().manual_seed(0)).points[:, 0, 0].detach()
    orbits: Candidates = {"none": Identity(), "rotation": Rotation(), "quarter turns": Rotate90()}
    return Problem(f"digits within ±{degrees:g}°", x.numpy(), data.y_train[:100], orbits, "gaussian")


def waves(full: bool) -> Problem:
    """Waves of 12 points; the target is their frequency, whatever their phase, or the frequency and a little of the
    phase."""
    rng = np.random.default_rng(1)
    frequency, phase = rng.uniform(0.5, 2.5, 80), rng.uniform(0, 2 * np.pi, 80)
    x = np.cos(2 * np.pi * frequency[:, None] * np.arange(12) / 12 + phase[:, None]) + 0.05 * rng.normal(size=(80, 12))
    y = frequency + (0.0 if full else 0.5) * np.cos(phase) + 0.05 * rng.normal(size=80)
    return Problem(
        "phase" if full else "half a phase", x, y, {"none": Identity(), "few": rolls(12, 2), "all": rolls(12, 5)}
    )


def parity() -> Problem:
    """A function that changes its sign when its two coordinates are exchanged: no symmetry that an average could
    have."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2))
    y = np.sin(2 * (x[:, 0] - x[:, 1])) + 0.1 * rng.normal(size=60)
    return Problem("parity", x, y, {"none": Identity(), "swap": Permutation.swap(0, 1)})


def problem(name: str) -> Problem:
    """A problem by its name: a number, or one of those made by hand."""
    return generated(int(name)) if name.isdigit() else by_hand()[name]()


def setting(which: Problem) -> tuple[torch.Tensor, Likelihood, torch.Tensor]:
    """Inputs, likelihood and targets as the estimators see them, up to the units of the targets."""
    x = torch.from_numpy(np.ascontiguousarray(which.x))
    if which.likelihood is None:
        return x, Gaussian(), torch.from_numpy(scaled(which.y[:, None]))
    labels = torch.from_numpy(np.unique(which.y, return_inverse=True)[1])
    count = int(labels.max()) + 1
    likelihood = Dirichlet(count) if which.likelihood == "dirichlet" else GaussianIndicators(count)
    likelihood.prepare(x, labels)
    return x, likelihood, likelihood.encode(labels)


def climb(which: Problem, name: str, seed: int, draws: int, begin: Mapping[str, Any] = NOTHING) -> tuple[float, State]:
    """The exact evidence at the top that one random start reaches, or one that begins where another has ended."""
    x, likelihood, y = setting(which)
    orbit = deepcopy(which.orbits[name]).to(x.dtype)
    variance = likelihood.start(y)[0] if isinstance(likelihood, Classification) else 1.0
    kernel = initial_kernel(None, x, variance, torch.Generator().manual_seed(0))
    model = ExactGP(kernel, orbit, x, likelihood.num_latents)
    rng = np.random.default_rng([seed, 1])
    with torch.no_grad():
        for parameter in (*kernel.parameters(), *(p for p in likelihood.parameters() if p.requires_grad)):
            parameter.add_(torch.from_numpy(rng.normal(size=parameter.shape)).to(parameter))  # all are logarithms
        for reach in orbit.reaches():
            reach.mul_(2.0 ** rng.uniform(-3, 2))
    parts = {"kernel": kernel, "orbit": orbit, "likelihood": likelihood}
    for key, state in begin.items():
        parts[key].load_state_dict(state)
    samples = None if isinstance(orbit, FiniteOrbit) else draws
    climber = Ladder(model=model, likelihood=likelihood, x=x, y=y, rungs=[Rung(len(x), samples)], several=False)
    value = climber.run().log_evidence
    if begin and samples is not None:  # draws that nothing was fitted to
        value = model.restricted(x, FRESH_DRAWS, seed=1).log_evidence(likelihood, y)
    return value, {key: part.state_dict() for key, part in parts.items()}


def best_of_starts(which: Problem, name: str) -> list[float]:
    """The exact evidence of the starts that went all the way, best first."""
    ends = []
    for seed in range(STARTS):
        try:
            ends.append(climb(which, name, seed, FEW_DRAWS))
        except FloatingPointError:
            continue
    ends.sort(key=lambda end: -end[0])
    if isinstance(which.orbits[name], FiniteOrbit):
        return [value for value, _ in ends]
    again = [climb(which, name, 0, MANY_DRAWS, state) for _, state in ends[:AGAIN]]
    return sorted((value for value, _ in again), reverse=True)


@dataclass(frozen=True)
class Verdict(harness.Run):
    """One problem: its truth, or what ``compare`` says of it."""

    problem: str
    part: str  # truth, or one of MODES

    def name(self) -> str:
        return harness.slug(self.problem, self.part)

    def measure(self, device: str) -> Record:
        torch.set_num_threads(1)
        which = problem(self.problem)
        begin = time.perf_counter()
        found = self.truth(which) if self.part == "truth" else self.verdict(which)
        record = {"seconds": round(time.perf_counter() - begin, 1), **found}
        print(f"{self.name()}: {found.get('verdict') or found['evidence']} ({record['seconds']:.0f} s)", flush=True)
        return record

    def truth(self, which: Problem) -> Record:
        """The best evidence of every candidate, and that of its second-best start."""
        tops = {name: [rounded(value) for value in best_of_starts(which, name)[:2]] for name in which.orbits}
        return {"title": which.title, "evidence": {name: values[0] for name, values in tops.items()}, "starts": tops}

    def verdict(self, which: Problem) -> Record:
        """What ``compare`` says in words, and the evidence of each candidate with its interval."""
        settings: Settings = {"task": "regression"}
        if which.likelihood is not None:
            settings = {"task": "classification", "likelihood": which.likelihood}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = orbitgp.compare(which.x, which.y, which.orbits, inference=self.part, **settings).to_dict()
        intervals = {row["orbit"]: [rounded(row[key]) for key in ("evidence", "low", "high")] for row in result["rows"]}
        return {key: result[key] for key in ("verdict", "settled", "best", "tied")} | {"evidence": intervals}


@cache
def names() -> tuple[str, ...]:
    """All problems: those made by hand first, as they take longest."""
    return (*by_hand(), *map(str, range(COUNT)))


def plan(options: argparse.Namespace) -> list[Verdict]:
    """Every problem, or some, with its truth and the modes that were asked for."""
    chosen = ["phase", *map(str, range(4))] if options.quick else names()[:: options.some]
    return [Verdict(name, part) for name in chosen for part in ("truth", *options.modes)]


class Outcome(NamedTuple):
    """What came of a problem: the nats by which the best candidate leads, and whether the verdict was right."""

    problem: str
    title: str
    gap: float
    said: str  # right, wrong, or cannot tell
    seconds: float


def outcomes(records: Records, mode: str) -> list[Outcome]:
    """The outcomes of one mode, for all problems whose truth is known."""
    truths = {r["settings"]["problem"]: r for r in records if r["settings"]["part"] == "truth"}
    found = []
    for record in records:
        name = record["settings"]["problem"]
        if record["settings"]["part"] != mode or name not in truths:
            continue
        evidence = truths[name]["evidence"]
        first, second = sorted(evidence.values(), reverse=True)[:2]
        best = max(evidence, key=evidence.__getitem__)
        tied = record["tied"]
        said = "wrong" if best not in tied else "right" if len(tied) == 1 else "cannot tell"
        found.append(Outcome(name, truths[name]["title"], first - second, said, record["seconds"]))
    return found


def table(records: Records) -> str:
    """How often each mode is right, wrong and cannot tell, by the true gap; then every problem that went wrong."""
    titles = [
        "inference",
        "true gap (nats)",
        "problems",
        "certain and right",
        "certain and wrong",
        "cannot tell",
        "median seconds",
    ]
    cells, wrong = [], []
    for mode in MODES:
        found = outcomes(records, mode)
        for name, (low, high) in GAPS.items():
            some = [o for o in found if low <= o.gap < high]
            counts = [sum(o.said == said for o in some) for said in ("right", "wrong", "cannot tell")]
            seconds = f"{np.median([o.seconds for o in some]):.0f}" if some else ""
            cells.append([mode, name, str(len(some)), *map(str, counts), seconds])
        wrong += [
            f"{mode} is certain and wrong of {o.problem} ({o.title}): gap {o.gap:.1f}."
            for o in found
            if o.said == "wrong"
        ]
    return "\n".join([harness.markdown(titles, cells), *wrong])


def check(records: Records) -> Claims:
    """Certain and wrong never; certain of most problems that are clear."""
    claims: Claims = {}
    for mode in MODES:
        found = outcomes(records, mode)
        clear = [o for o in found if o.gap > 20]
        if found:
            claims[f"{mode}: certain and wrong never"] = not any(o.said == "wrong" for o in found)
        if clear:
            right = sum(o.said == "right" for o in clear)
            name = f"{mode}: certain in {100 * ENOUGH:.0f} % of the problems above 20 nats ({right} of {len(clear)})"
            claims[name] = right >= ENOUGH * len(clear)
    return claims


EXPERIMENT = harness.Experiment(
    "verdicts",
    __doc__,
    plan,
    table,
    check,
    seeds=1,
    options={
        "--some": {"type": int, "default": 1, "help": "only every so many-th problem"},
        "--modes": {"nargs": "*", "choices": MODES, "default": MODES, "help": "only some kinds of inference, or none"},
    },
    on_gpu=False,
)
