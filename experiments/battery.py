"""A battery of small problems: does the default run reach the best evidence that ten other starts find?

Cases are drawn once, by a fixed seed, from data x orbit x start x likelihood x unit of the inputs. Each is fitted by
the estimator with nothing but defaults. Then another optimiser (L-BFGS-B, from ten random starts of orbit, kernel and
likelihood) climbs the same exact evidence, of the same draws. A run counts as good if it is at most

    max(3 nats, 1 % of the distance between the plain Gaussian process and the best)

below the best of all of them. The plain Gaussian process has the same kernel, and no orbit. Draws of an orbit may be
fitted, so an end that is higher on these alone does not count: it must be as far ahead on fresh draws.

    python -m experiments battery --jobs 16

What the reference finds depends on the draws, so another version of the learner that ends with as many draws need not
find it again: ``--known FILE`` takes it from earlier records, and begins with the cases that took longest.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.ndimage import shift
from scipy.optimize import minimize
from sklearn import datasets
from sklearn.preprocessing import scale
from torch import Tensor

from experiments import harness
from experiments.harness import Claims, Record, Records
from orbitgp.datasets import digits, rotate
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.inference.exact import ExactGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Identity, Orbit
from orbitgp.orbits.parse import make_orbit

NUM_CASES, SEED = 64, 16
GOAL = 0.95  # of the cases
NATS, SHARE = 3.0, 0.01  # what a good run may be below the best: nats, or this share of the distance to the plain GP
STARTS, FIRST_DRAWS, FINALISTS = (
    10,
    8,
    2,
)  # of the reference: starts with so few draws; the best ones go on with all draws
FRESH_SETS = range(11, 16)  # of draws, that no learner has asked for
SETTLED = (5, 0.1)  # so many iterations that gain fewer nats end a climb
SPREAD = math.log(10.0)  # of the random starts: kernel, noise and reach are multiplied by factors of 1/10 to 10

Inputs = Float[np.ndarray, "rows *features"]
Targets = Float[np.ndarray, " rows"]


class Data(NamedTuple):
    """How to draw so many rows, whether their targets are classes, and which orbits, likelihoods and units suit
    them."""

    draw: Callable[[int, int], tuple[Inputs, Any]]
    classes: bool
    orbits: tuple[str, ...]
    likelihoods: tuple[str, ...]
    units: tuple[float, ...] = (1.0,)


def images(
    rows: int, seed: int, degrees: float = 0.0, pixels: float = 0.0, labels: tuple[int, ...] = ()
) -> tuple[Any, Any]:
    """Embedded digits, turned or moved by up to so much; of these labels only, if any."""
    data = digits(test_fraction=0.0, seed=seed)
    x, y = data.x_train, data.y_train
    chosen = np.flatnonzero(np.isin(y, labels) if labels else y >= 0)[:rows]
    x, y = rotate(x[chosen], degrees, seed)[0], y[chosen]
    moves = np.random.default_rng(seed).uniform(-pixels, pixels, (len(x), 2))
    return np.stack([shift(image, move, order=1) for image, move in zip(x, moves, strict=True)]).astype(np.float32), y


def signals(rows: int, seed: int) -> tuple[Any, Any]:
    """Bumps anywhere in a signal of 24 steps, as images of one row; the target is their width."""
    rng = np.random.default_rng(seed)
    width, place, height = rng.uniform(1, 3, rows), rng.uniform(8, 16, rows), rng.uniform(0.5, 1.5, rows)
    x = height[:, None] * np.exp(-0.5 * ((np.arange(24) - place[:, None]) / width[:, None]) ** 2)
    return (x + 0.02 * rng.normal(size=x.shape))[:, None].astype(np.float32), width + 0.1 * rng.normal(size=rows)


def noisy_inputs(rows: int, seed: int) -> tuple[Any, Any]:
    """A sine whose inputs were measured with noise."""
    rng = np.random.default_rng(seed)
    clean = rng.uniform(0, 6, (rows, 1))
    return clean + 0.3 * rng.normal(size=clean.shape), np.sin(clean[:, 0]) + 0.05 * rng.normal(size=rows)


def symmetric(rows: int, seed: int) -> tuple[Any, Any]:
    """A function of two inputs that may be exchanged."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    return x, np.cos(2 * x[:, 0] - x[:, 1]) + np.cos(2 * x[:, 1] - x[:, 0]) + 0.1 * rng.normal(size=rows)


def table(rows: int, seed: int, load: Callable[..., Any]) -> tuple[Any, Any]:
    """Some rows of a table of scikit-learn, with columns of unit variance."""
    x, y = load(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    return scale(x)[chosen], y[chosen]


WARPS = (
    "rotation(5)", "rotation(45)", "rotation(150)", "translation(0.3)", "translation(2)", "scale(1.1)", "affine",
    "affine(40, 1.05, 1.05, 0.05, 0.3, 0.3)", "rotation(10)*translation(1)", "translation(0.5)*rotation(90)",
    "rotation(10)*deformation(0.5)", "flip*rotation(20)", "rotate90*translation(0.5)", "noise(0.02)",
)  # fmt: skip
SHIFTS = (
    "translation(0.5, None)",
    "translation(8, None)",
    "scale(1.1)*translation(1, None)",
    "flip*translation(1, None)",
)
NOISES = ("noise", "noise(0.003)", "noise(3)")
UNITS = (1.0, 1e-3, 1e3)
MANY, TWO, VALUES = ("dirichlet", "gaussian"), ("bernoulli", "gaussian"), ("gaussian", "student-t")
DATA = {
    "digits": Data(images, True, WARPS, MANY),
    "digits within 60 degrees": Data(partial(images, degrees=60.0), True, WARPS, MANY),
    "digits within 1.5 pixels": Data(partial(images, pixels=1.5), True, WARPS, MANY),
    "digits 3 and 8 within 30 degrees": Data(partial(images, degrees=30.0, labels=(3, 8)), True, WARPS, TWO),
    "signals": Data(signals, False, SHIFTS, VALUES),
    "noisy inputs": Data(noisy_inputs, False, NOISES, VALUES, UNITS),
    "symmetric": Data(symmetric, False, ("swap(0, 1)", *NOISES, "swap(0, 1)*noise"), VALUES, UNITS),
    "diabetes": Data(partial(table, load=datasets.load_diabetes), False, ("none", *NOISES), VALUES, UNITS),
    "iris": Data(partial(table, load=datasets.load_iris), True, ("none", *NOISES), MANY, UNITS),
    "breast cancer": Data(partial(table, load=datasets.load_breast_cancer), True, ("none", *NOISES), TWO, UNITS),
}


@dataclass(frozen=True)
class Case(harness.Run):
    """One problem; ``unit`` multiplies the inputs. ``known`` is what an earlier record has of the reference."""

    number: int
    data: str
    orbit: str
    likelihood: str
    unit: float
    rows: int
    seed: int
    known: InitVar[Record | None] = None  # no setting: what is drawn does not depend on it

    def __post_init__(self, known: Record | None) -> None:
        object.__setattr__(self, "reference", known)

    def name(self) -> str:
        return harness.slug(f"{self.number:02d}", self.data, self.orbit, self.likelihood, f"{self.unit:g}", self.seed)

    def measure(self, device: str) -> Record:
        kind = DATA[self.data]
        x, y = kind.draw(self.rows, self.seed)
        x = (self.unit * x).astype(x.dtype)
        estimator = InvariantGPClassifier if kind.classes else InvariantGPRegressor
        default = estimator(make_orbit(self.orbit), likelihood=self.likelihood, random_state=self.seed, device=device)
        begin = time.perf_counter()
        default.fit(x, y)
        seconds = time.perf_counter() - begin
        rng = np.random.default_rng(self.seed)
        reference = Reference.of(default, x, y)
        reached = reference.condition()
        begin = time.perf_counter()
        known = vars(self)["reference"] or {"num_samples": -1, "plain": math.nan}
        same_draws = known["num_samples"] == reference.model.num_samples
        other = None if same_draws else reference.best(rng, make_orbit(self.orbit))
        plain = known["plain"] if math.isfinite(known["plain"]) else reference.best(rng, Identity()).condition()
        best = max(known["best"] if other is None else other.condition(), reached)
        behind = best - reached
        if other is not None and reference.model.num_samples is not None:
            behind = min(behind, max(0.0, other.fresh() - reference.fresh()))
        return {
            "evidence": reached,
            "best": best,
            "plain": plain,
            "behind": behind,
            "allowed": max(NATS, SHARE * (best - plain)),
            "inference": default.inference_,
            "converged": default.converged_,
            "num_samples": reference.model.num_samples,
            "evaluations": default.history_[-1]["step"],
            "orbit": default.orbit_.describe().to_dict(),
            "seconds": {"fit": seconds, "reference": time.perf_counter() - begin},
        }


@dataclass
class Reference:
    """The exact evidence of a fitted model, for another optimiser to climb."""

    model: ExactGP
    likelihood: Likelihood
    y: Tensor

    @classmethod
    def of(cls, fitted: Any, x: Inputs, y: Any) -> Reference:
        """The problem that an estimator was given, and the model that it found."""
        model = fitted.model_
        assert isinstance(model, ExactGP), "the battery is for data that are few enough for exact inference."
        found = deepcopy(fitted.likelihood_)
        return cls(model, found, fitted._problem(model.x, np.asarray(y), None).y)

    def condition(self) -> float:
        """The evidence as it is."""
        return self.model.condition(self.likelihood, self.y).log_evidence

    def fresh(self) -> float:
        """The evidence with draws that nothing was fitted to."""
        return self.model.fresh_evidence(self.likelihood, self.y, sets=FRESH_SETS).value

    def best(self, rng: np.random.Generator, orbit: Orbit) -> Reference:
        """The best of several random starts with this orbit in place of the model's own, and of the model as it is."""
        samples = None if isinstance(orbit, Identity) else self.model.num_samples
        first = samples and min(samples, FIRST_DRAWS)
        ends = sorted((self._climb(*self._start(rng, orbit, first)) for _ in range(STARTS)), key=lambda end: -end[0])
        if samples != first:
            finalists = [(model, likelihood) for _, model, likelihood in ends[:FINALISTS]]
            finalists.append((deepcopy(self.model), deepcopy(self.likelihood)))
            for model, _ in finalists:
                model.num_samples = samples
            ends = sorted((self._climb(model, likelihood) for model, likelihood in finalists), key=lambda end: -end[0])
        _, model, likelihood = ends[0]
        return Reference(model, likelihood, self.y)

    def _start(self, rng: np.random.Generator, orbit: Orbit, samples: int | None) -> tuple[ExactGP, Likelihood]:
        """A copy of the model with another orbit; everything that is learned is moved by random factors."""
        model, likelihood = deepcopy(self.model), deepcopy(self.likelihood)
        model.orbit, model.num_samples = deepcopy(orbit).to(model.x.dtype), samples
        extent = float(model.x.double().std())
        with torch.no_grad():
            for reach in model.orbit.reaches():
                reach.mul_(float(np.exp(rng.uniform(-SPREAD, SPREAD))))
                if model.orbit.in_units_of_inputs:
                    reach.fill_(extent * float(np.exp(rng.uniform(-2 * SPREAD, 0))))
            for parameter in (*model.kernel.parameters(), *likelihood.parameters()):  # logarithms, all of them
                parameter.add_(float(rng.uniform(-SPREAD, SPREAD)))
        return model, likelihood

    def _climb(self, model: ExactGP, likelihood: Likelihood) -> tuple[float, ExactGP, Likelihood]:
        learned = (*model.parameters(), *likelihood.parameters())
        parameters = [p for p in learned if p.requires_grad and p is not model.prior_mean.bias]
        reaches = {id(reach) for reach in model.orbit.reaches()}
        units = [max(float(p.detach().abs().max()), 1e-300) if id(p) in reaches else 1.0 for p in parameters]

        def set_to(vector: np.ndarray) -> None:
            with torch.no_grad():
                for p, unit, part in zip(parameters, units, np.split(vector, splits), strict=True):
                    p.copy_(torch.from_numpy(part * unit).reshape(p.shape))

        def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
            set_to(vector)
            for p in parameters:
                p.grad = None
            try:
                value = model.evidence_with_gradient(likelihood, self.y).log_evidence
            except FloatingPointError:
                return 1e10, np.zeros_like(vector)
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            flat = [unit * g.double().numpy().ravel() for g, unit in zip(gradients, units, strict=True)]
            return -value, -np.concatenate(flat)

        splits = np.cumsum([p.numel() for p in parameters])[:-1]
        start = np.concatenate(
            [p.detach().double().numpy().ravel() / u for p, u in zip(parameters, units, strict=True)]
        )
        values: list[float] = []

        def after_iteration(intermediate_result: Any) -> None:
            values.append(float(intermediate_result.fun))
            if len(values) > SETTLED[0] and values[-SETTLED[0] - 1] - values[-1] < SETTLED[1]:
                raise StopIteration

        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", callback=after_iteration, options={"maxfun": 150}
        )
        set_to(found.x)
        return -float(found.fun), model, likelihood


def cases(count: int = NUM_CASES) -> list[Case]:
    """The battery: the same cases every time."""
    rng = np.random.default_rng(SEED)
    drawn: list[Case] = []
    names = list(DATA)
    while len(drawn) < count:
        name = names[len(drawn) % len(names)]
        kind = DATA[name]
        orbit, likelihood = str(rng.choice(kind.orbits)), str(rng.choice(kind.likelihoods))
        unit, rows = float(rng.choice(kind.units)), int(rng.integers(60, 121))
        drawn.append(Case(len(drawn), name, orbit, likelihood, unit, rows, seed=int(rng.integers(3))))
    return drawn


def is_good(record: Record) -> bool:
    """Whether a run came as close to the best as is asked."""
    return bool(record["behind"] <= record["allowed"])


def summary(records: Records) -> str:
    """A line for each case, the worst first."""
    titles = ["case", "evidence", "plain", "behind the best", "allowed", "S", "evaluations", "seconds", "learned"]
    cells = [
        [
            r["name"],
            f"{r['evidence']:,.1f}",
            f"{r['plain']:,.1f}",
            f"{r['behind']:.1f}" + ("" if is_good(r) else " !"),
            f"{r['allowed']:.1f}",
            str(r["num_samples"] or ""),
            str(r["evaluations"]),
            f"{r['seconds']['fit']:.1f}",
            harness.reach(r["orbit"]),
        ]
        for r in sorted(records, key=lambda r: r["allowed"] - r["behind"])
    ]
    good = sum(map(is_good, records))
    return f"{harness.markdown(titles, cells)}\n\n{good} of {len(records)} runs are as good as the best."


def by_data(records: Records) -> str:
    """A line for each kind of data: how many runs are good, and how far the others are behind."""
    cells = [
        [
            data,
            f"{sum(map(is_good, group))} of {len(group)}",
            f"{max(r['behind'] for r in group):.1f}",
            f"{np.median([r['seconds']['fit'] for r in group]):.1f}",
        ]
        for (data,), group in harness.grouped(records, "data").items()
    ]
    return harness.markdown(["data", "as good as the best", "farthest behind (nats)", "median seconds"], cells)


def check(records: Records) -> Claims:
    """Nearly all default runs are as good as the best."""
    share = sum(map(is_good, records)) / len(records)
    return {f"{GOAL:.0%} of the default runs come as close to the best as is asked": share >= GOAL}


def plan(options: argparse.Namespace) -> list[Case]:
    """The cases that were asked for."""
    drawn = cases()
    drawn = drawn[:: 1 if not options.quick else 16] if options.only is None else [drawn[i] for i in options.only]
    if options.known is None:
        return drawn
    records = harness.load(options.known)
    found = {name: {key: record[key] for key in ("num_samples", "best", "plain")} for name, record in records.items()}
    seconds = {name: sum(record["seconds"].values()) for name, record in records.items()}
    drawn.sort(key=lambda case: -seconds.get(case.name(), math.inf))
    return [replace(case, known=found.get(case.name())) for case in drawn]


EXPERIMENT = harness.Experiment(
    "battery",
    __doc__,
    plan,
    summary,
    check,
    seeds=1,
    options={
        "--only": {"nargs": "+", "type": int, "help": "only these cases, by number"},
        "--known": {"type": Path, "help": "earlier records, whose references serve again"},
    },
    on_gpu=False,
)
