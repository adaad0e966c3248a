"""Does certain mean certain? Intervals and verdicts against evidence from independent code, on many small problems.

Six parts (:mod:`experiments.certainty_truth` has the truth):

- ``noise``: none against Gaussian noise. Under an RBF kernel these are one family, so nothing may be certain.
- ``intervals``: does the interval of the evidence hold the evidence of the infinite orbit at the learned parameters?
- ``null``: data of a Gaussian process without an invariance. How often is an orbit supported?
- ``best``: sparse models, and exact ones that learn from half the rows. Do the intervals of ``compare`` hold the
  evidence of the best hyperparameters?
- ``lists``: the null for all orbits that ``orbitgp compare`` tries by default. How often is any of them supported?
- ``power``: data of an invariant Gaussian process. How often is the invariance found, and is a verdict ever wrong?

A problem is a part, a kind and a seed, and runs on one thread. Kinds take turns, so a run that was stopped has seen
them all.

``python -m experiments certainty --jobs 16``
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import expit

import orbitgp
from experiments import certainty_data, harness
from experiments import certainty_truth as true
from experiments.certainty_data import inputs, planted, smooth_gram
from experiments.certainty_truth import Array, Targets, Truth
from experiments.harness import Claims, Record, Records
from orbitgp.comparison.symmetry import likely_generators
from orbitgp.likelihoods import Bernoulli, Dirichlet
from orbitgp.orbits import FiniteOrbit, GaussianNoise, Identity, LocalDeformation, Rotation, TimeShift
from orbitgp.orbits.parse import make_orbit

CLEAR = 20.0  # nats: a planted invariance that must be found
ROUNDING = 0.05  # nats by which an interval may miss the truth
NOISE = 0.05  # standard deviation of the noise where an invariance is planted, for targets of unit variance
TRUTH_POINTS = 120_000  # orbit points of all rows together, in the truth by draws
MOST_DRAWS = 4096
HURRY = 0.3  # seconds of exact inference that let 600 rows of four columns learn from 300


def targets_of(model: Any, y: Array) -> Targets | None:
    """What a fitted model observes, or None where its likelihood is not Gaussian in f."""
    likelihood = model.likelihood_
    if isinstance(likelihood, Bernoulli):
        return None
    if isinstance(likelihood, Dirichlet):
        return true.dirichlet_targets(y, likelihood.concentration)
    noise = float(likelihood.noise)
    if hasattr(model, "classes_"):
        return true.indicator_targets(y, noise)
    return true.regression_targets(y, noise, float(model.target_mean_[0]), float(model.target_scale_[0]))


@torch.no_grad()
def truth_of(model: Any, x: Array, y: Array) -> Truth | None:
    """The log evidence of the infinite orbit at the learned parameters."""
    targets, orbit = targets_of(model, y), model.orbit_
    if targets is None:
        return None
    if model.inference_ == "sparse":  # which learns the prior mean as it learns the kernel
        targets = targets._replace(constants=model.model_.prior_mean.bias.detach().numpy())
    lengthscale = model.kernel_.base_kernel.lengthscale.detach().double().numpy().ravel()
    kernel = lengthscale, float(model.kernel_.outputscale)
    if isinstance(orbit, Identity | GaussianNoise):
        scale = orbit.scale.detach().double().numpy() if isinstance(orbit, GaussianNoise) else 0.0
        flat = x.reshape(len(x), -1).astype(float)
        return Truth(true.log_evidence(true.noise_gram(flat, *kernel, scale), targets))
    learned = orbit.describe().to_dict()
    if isinstance(orbit, Rotation):
        angle = float(np.deg2rad(learned["degrees"]))
        return true.by_midpoints(
            lambda at: true.warped(x, true.affine_maps(at)), -angle, angle, *kernel, targets=targets
        )
    if isinstance(orbit, TimeShift):
        low, high = learned["shift"]
        return true.by_midpoints(lambda at: true.shifted(x, at), low, high, *kernel, targets=targets)
    if isinstance(orbit, FiniteOrbit):
        points = orbit.shared_samples(torch.from_numpy(x), None).points[:, 0].flatten(2).numpy()
        return Truth(true.log_evidence(true.orbit_gram(points, *kernel), targets))
    draws = min(MOST_DRAWS, 2 ** int(np.log2(TRUTH_POINTS / len(x)))) // 2
    halves = [
        orbit.shared_samples(torch.from_numpy(x), draws, seed).points[:, 0].flatten(2).numpy() for seed in (7001, 7002)
    ]
    return true.by_draws(np.stack(halves), *kernel, targets=targets)


def finite(end: float) -> float | None:
    """An end of an interval, None where it is open."""
    return end if math.isfinite(end) else None


def scored(model: Any, x: Array, y: Array) -> Record:
    """The evidence of a fitted model, its interval and the truth."""
    low, high = model.evidence_.interval
    said = {"value": model.evidence_.value, "low": finite(low), "high": finite(high), "converged": model.converged_}
    learned = {"samples": model.evidence_.num_samples, "learned": model.orbit_.describe().to_dict()}
    found = truth_of(model, x, y)
    if found is None:
        return {**said, **learned, "holds": None}
    slack = ROUNDING + found.error
    holds = low - slack <= found.nats <= high + slack
    return {**said, **learned, "truth": found.nats, "truth_error": found.error, "holds": bool(holds)}


def compared(x: Array, y: Array, orbit: Any, **settings: Any) -> tuple[Record, Any]:
    """What ``compare`` says of an orbit against none, and the comparison itself."""
    result = orbitgp.compare(x, y, {"none": None, "orbit": orbit}, **settings)
    standings = {standing.name: standing for standing in result.standings}
    plain, other = standings["none"], standings["orbit"]
    supports = "orbit" if result.best == "orbit" else "none"
    return {
        "certain": result.settled,
        "supports": supports if result.settled else "",
        "difference": other.value - plain.value,
        "difference_low": finite(other.low - plain.high),
        "difference_high": finite(other.high - plain.low),
        "models": sum(row.models for row in result.rows),
    }, result


def solve_noise(kind: str, seed: int) -> Record:
    """None against noise: certain would be wrong, as both are one family."""
    rng = np.random.default_rng([390, seed])
    x, y, labels = certainty_data.table(kind, rng, int(rng.integers(40, 101)))
    likelihood = "gaussian" if seed % 2 else "auto"
    settings = {"likelihood": likelihood, "task": "classification" if labels else "regression"}
    record, result = compared(x, y, GaussianNoise((0.1, 0.3)[seed // 2 % 2]), **settings)
    model = result.models["orbit"]
    name = model.evidence_.likelihood
    return {**record, "wrong": record["certain"], "rows": len(x), "likelihood": name, **scored(model, x, y)}


def solve_interval(kind: str, seed: int) -> Record:
    """One fit of an orbit to 20 to 100 images or signals; targets of a plain or an invariant process, or labels of
    digits."""
    rng = np.random.default_rng([391, seed])
    rows, style = int(rng.integers(20, 101)), ("plain", "planted", "labels")[seed % 3]
    orbits = {"rotation": Rotation(45), "affine": make_orbit("affine", (8, 8)), "timeshift": TimeShift()}
    orbit = orbits.get(kind, LocalDeformation())
    if kind == "rotation" and seed % 4 == 3:
        orbit = Rotation(float(rng.choice([15, 90, 180])), learn=False)
    x, order = inputs(kind, rng, rows), rng.permutation(1300)[:rows]
    if kind != "timeshift" and (style == "labels" or seed % 2):
        x = orbitgp.datasets.digits().x_train[order]
    if kind != "timeshift" and style == "labels":
        y = orbitgp.datasets.digits().y_train[order]
        model: Any = orbitgp.InvariantGPClassifier(orbit, likelihood="gaussian", random_state=seed)
    else:
        points = planted(kind, x, rng) if style == "planted" else x.reshape(rows, 1, -1).astype(float)
        y = true.drawn(smooth_gram(points, rng), float(rng.choice([0.05, 0.3])), rng)
        model = orbitgp.InvariantGPRegressor(orbit, random_state=seed)
    model.fit(x, y)
    return {"rows": rows, "style": style, **scored(model, x, y)}


def solve_null(kind: str, seed: int) -> Record:
    """40 data of a plain process: support of an orbit is false."""
    rng = np.random.default_rng([393, seed])
    x = inputs(kind, rng, 40)
    y = true.drawn(smooth_gram(x.reshape(40, 1, -1).astype(float), rng), 0.2, rng)
    record, _ = compared(x, y, "swap(0, 1)" if kind == "swap" else kind)
    return {**record, "false_support": record["supports"] == "orbit"}


def solve_best(kind: str, seed: int) -> Record:
    """A swap, or noise under an RBF kernel, whose best evidence is that of none. In half of the problems a swap is
    planted."""
    rng = np.random.default_rng([396, seed])
    how, orbit = kind.split()
    x = rng.normal(size=(int(rng.integers(80, 151)) if how == "sparse" else 600, 4))
    points = planted("swap", x, rng) if seed % 2 else x[:, None]
    y = true.drawn(smooth_gram(points, rng, 0.4, 0.7), float(rng.choice([0.05, 0.2, 0.5])), rng)
    some: Any = {"inference": "exact", "training": orbitgp.TrainingOptions(exact_seconds=HURRY)}
    few = {"num_inducing": len(x) // 4} if seed // 2 % 2 else {}  # else as many inducing points as rows
    settings = {"inference": "sparse", **few} if how == "sparse" else some
    record, result = compared(x, y, "swap(0, 1)" if orbit == "swap" else orbit, **settings)
    targets, starts = Targets(y[:, None], 0.1), 4 if how == "sparse" else 2
    plain = true.best_evidence(x, targets, starts, rng)
    best = true.best_evidence(x, targets, starts, rng, (1, 0, 2, 3)) if orbit == "swap" else plain
    truth, said = {"none": plain, "orbit": best}, {standing.name: standing for standing in result.standings}
    held = {name: said[name].low - ROUNDING <= nats <= said[name].high + ROUNDING for name, nats in truth.items()}
    low, high = record["difference_low"] or -math.inf, record["difference_high"] or math.inf
    return {
        **record,
        "rows": len(x),
        "learned_from": {name: model.evidence_.learned_from for name, model in result.models.items()},
        "standings": {name: [finite(one.low), one.value, finite(one.high)] for name, one in said.items()},
        "truth": truth,
        "holds": all(held.values()),
        "difference_holds": (low is None or low - ROUNDING <= best - plain)
        and (high is None or best - plain <= high + ROUNDING),
        "wrong": record["certain"] and (orbit == "noise" or (record["supports"] == "orbit") != (best > plain)),
    }


def solve_list(kind: str, seed: int) -> Record:
    """40 to 80 data of a plain process: support of any orbit is false. Every third problem has two classes."""
    rng = np.random.default_rng([395, seed])
    rows, labels = int(rng.integers(40, 81)), seed % 3 == 2
    if kind == "digits":
        x = orbitgp.datasets.digits().x_train[rng.permutation(1300)[:rows]]
    else:
        x = inputs({"signals": "timeshift", "table": "swap"}[kind], rng, rows)
    gram = smooth_gram(x.reshape(rows, 1, -1).astype(float), rng)
    if labels:  # f with a standard deviation of 3, seen through a logistic function, and both classes
        y = np.zeros(rows, dtype=int)
        while y.min() == y.max():
            y = (rng.uniform(size=rows) < expit(3 * true.drawn(gram, 0.0, rng))).astype(int)
    else:
        y = true.drawn(gram, float(rng.choice([0.05, 0.2, 0.5])), rng)
    orbits = LISTS.get(kind) or ("none", *likely_generators(x))
    result = orbitgp.compare(x, y, orbits, task="classification" if labels else "regression")
    over = result.over_plain()
    return {
        "rows": rows,
        "task": "classification" if labels else "regression",
        "evidence": {row.orbit: row.evidence for row in result.rows},
        "tied": result.tied,
        "over_none": over,
        "false_support": over is not None,
    }


def solve_power(kind: str, seed: int) -> Record:
    """80 to 100 data of an invariant process: is the invariance found?

    The truth is a difference: the orbit at its learned or its planted parameters, whichever have more evidence, less
    none at the best parameters that own code finds.
    """
    rng = np.random.default_rng([394, seed])
    inference, _, orbit = kind.rpartition(" ")
    x = inputs(orbit, rng, int(rng.integers(80, 101)))
    gram = smooth_gram(planted(orbit, x, rng), rng, 0.4, 0.7)
    y = true.drawn(gram, NOISE, rng)
    settings = {"inference": inference} if inference else {}
    record, result = compared(x, y, "swap(0, 1)" if orbit == "swap" else orbit, **settings)
    found = scored(result.models["orbit"], x, y)
    targets, plain = targets_of(result.models["none"], y), truth_of(result.models["none"], x, y)
    assert targets is not None
    assert plain is not None
    none = max(plain.nats, true.best_evidence(x, targets, 4, rng))
    as_planted = true.log_evidence(gram, Targets(y[:, None], NOISE**2))
    gain = max(found["truth"], as_planted) - none
    slack, learned = ROUNDING + found["truth_error"], found["truth"] - none
    low, high = record["difference_low"], record["difference_high"]
    return {
        **record,
        "rows": len(x),
        "gain": gain,
        "planted": as_planted,
        "none": none,
        **found,
        "difference_holds": (low is None or low - slack <= learned) and (high is None or learned <= high + slack),
        "wrong": record["certain"] and (record["supports"] == "orbit") != (gain > 0),
        "found": record["supports"] == "orbit" if gain >= CLEAR else None,
    }


LISTS = {"digits": ("none", "rotation", "affine"), "signals": ("none", "timeshift", "timewarp", "gain*offset")}
TABLES = ("iris", "wine", "breast_cancer", "diabetes", "curve", "two scales")
PARTS: dict[str, tuple[Callable[[str, int], Record], tuple[str, ...]]] = {
    "noise": (solve_noise, TABLES),
    "intervals": (solve_interval, ("rotation", "affine", "timeshift", "deformation")),
    "null": (solve_null, ("rotation", "affine", "deformation", "timeshift", "timewarp", "swap", "noise")),
    "best": (solve_best, ("sparse swap", "sparse noise", "some swap", "some noise")),
    "lists": (solve_list, ("digits", "signals", "table")),
    "power": (solve_power, ("rotation", "affine", "timeshift", "swap", "sparse rotation", "sparse swap")),
}


@dataclass(frozen=True)
class Problem(harness.Run):
    """One problem: which part, which kind, and the seed of its data."""

    part: str
    kind: str
    seed: int

    def name(self) -> str:
        return harness.slug(self.part, self.kind, self.seed)

    def measure(self, device: str) -> Record:
        torch.set_num_threads(1)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = PARTS[self.part][0](self.kind, self.seed)
        return {"seconds": round(time.perf_counter() - begin, 1), **found}


def plan(options: argparse.Namespace) -> list[Problem]:
    """All kinds of all parts in turn, seed by seed."""
    kinds = [(part, kind) for part in options.parts for kind in PARTS[part][1]]
    seeds = range(options.first, options.first + options.seeds)
    return [Problem(part, kind, seed) for seed in seeds for part, kind in kinds]


COLUMNS = {
    "holds": "interval holds",
    "difference_holds": "difference holds",
    "certain": "certain",
    "false_support": "false support",
    "found": f"found, of {CLEAR:.0f} nats",
    "wrong": "certain and wrong",
}


def known(records: Records, key: str) -> list[bool]:
    """What the records say of this, where they say anything."""
    return [record[key] for record in records if record.get(key) is not None]


def table(records: Records) -> str:
    """For each part and kind: in how many of the problems that tell something is so."""
    lines = []
    for (part, kind), group in harness.grouped(records, "part", "kind").items():
        said = [known(group, key) for key in COLUMNS]
        shares = [f"{sum(each)} of {len(each)}" if each else "" for each in said]
        lines.append([part, kind, *shares, f"{np.mean([record['seconds'] for record in group]):.0f}"])
    return harness.markdown(["part", "kind", *COLUMNS.values(), "mean seconds"], sorted(lines))


def check(records: Records) -> Claims:
    """What certain means, in shares of all problems."""
    of = {part: group for (part,), group in harness.grouped(records, "part").items()}
    claims = {}
    if noise := of.get("noise"):
        claims["none against noise is never certain"] = not any(known(noise, "certain"))
    for part in ("noise", "intervals", "best"):
        if part in of:
            share = np.mean(known(of[part], "holds"))
            claims[f"{part}: 95 % of the intervals hold the true evidence ({share:.1%})"] = bool(share >= 0.95)
    for (part, kind), group in harness.grouped([*of.get("null", []), *of.get("lists", [])], "part", "kind").items():
        share = np.mean(known(group, "false_support"))
        claims[f"{part}, {kind}: at most 5 % false support ({share:.1%})"] = bool(share <= 0.05)
    if best := of.get("best"):
        claims["best: none is certain and wrong"] = not any(known(best, "wrong"))
    if power := of.get("power"):
        share = np.mean(known(power, "found") or [True])
        claims[f"power: 80 % of the planted invariances are found ({share:.1%})"] = bool(share >= 0.8)
        claims["power: none is certain and wrong"] = not any(known(power, "wrong"))
    return claims


EXPERIMENT = harness.Experiment(
    "certainty",
    __doc__,
    plan,
    table,
    check,
    seeds=16,
    options={
        "--parts": {"nargs": "+", "choices": list(PARTS), "default": list(PARTS), "help": "only some of the parts"},
        "--first": {"type": int, "default": 0, "help": "the first seed"},
    },
    on_gpu=False,
)
