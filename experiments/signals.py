"""Signals and spectra: the evidence picks an orbit and a feature map, and the test set only says how good that was.

Five data sets of the public archive (ArrowHead, Coffee, GunPoint, ItalyPowerDemand, OSULeaf), BasicMotions with six
channels, and the Tecator spectra. Every model is fitted with the library's defaults. Of all models of one data set, the
one with the highest evidence of the training data counts. Seed 0 is the archive's own split, other seeds are stratified
resamples of it. On resamples the evidence chooses between the models that all of them have: the feature maps, and
orbits if there was time.

``ORBITGP_SIGNALS=FOLDER python -m experiments signals``, where FOLDER has NAME.npz with x_train, y_train, x_test and
y_test. MiniROCKET is run where aeon is installed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from torch import nn

from experiments import harness, rivals
from experiments.harness import Claims, Record, Records
from orbitgp.comparison.verdict import Difference, Standing
from orbitgp.datasets.base import data_folder
from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.kernels import SNV, ShapeHistograms, SmoothDerivative
from orbitgp.orbits.parse import make_orbit

FIVE = ("ArrowHead", "Coffee", "GunPoint", "ItalyPowerDemand", "OSULeaf")
SETS = (*FIVE, "BasicMotions", "Tecator")
PRODUCTS = ("timeshift*timescale", "timeshift*timewarp", "circularshift*timescale")
TIME = ("timeshift", "circularshift", "timescale", "timewarp", *PRODUCTS)
ORBITS = ("none", "gain*offset", *TIME)
OF_SLOPES = ("none", "gain*offset", "timeshift", "timewarp")
OF_SHAPES = ("none", "timeshift", "circularshift")  # others take too long; on OSULeaf, of slopes too, all but none do
ON_RESAMPLES = {"values": ("none", "timeshift", "timewarp"), "shapes": ("none", "timeshift")}  # of other maps, none
MAPS: dict[str, Callable[[], nn.Module | None]] = {
    "values": lambda: None,
    "SNV": SNV,
    "slope": lambda: SmoothDerivative(1),
    "curvature": lambda: SmoothDerivative(2),
    "shapes": ShapeHistograms,
}
# The archive's signals have mean 0 and deviation 1: there SNV is values.
FOR_CLASSES, FOR_SPECTRA = ("values", "slope", "curvature", "shapes"), ("values", "SNV", "slope", "curvature")
OF_SPECTRA = ("none", "gain*offset", "baseline", "timeshift")
BY_DEFAULT = (
    "none, values",
    "timeshift, values",
    "timewarp, values",
    "gain*offset, values",
)  # what orbitgp compare tries
# The archive's table for the same splits: 1-NN DTW with a tuned window, BOSS, shapelets and COTE.
PUBLISHED = {
    "ArrowHead": (0.800, 0.834, 0.737, 0.811),
    "Coffee": (1.000, 1.000, 0.964, 1.000),
    "GunPoint": (0.913, 1.000, 1.000, 1.000),
    "ItalyPowerDemand": (0.955, 0.909, 0.948, 0.961),
    "OSULeaf": (0.599, 0.955, 0.967, 0.967),
}


def load(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """x_train, y_train, x_test, y_test: the archive's split, or with another seed than 0 a stratified resample of
    it."""
    folder = Path(os.environ.get("ORBITGP_SIGNALS") or data_folder(None) / "signals")
    with np.load(folder / f"{name}.npz") as file:
        x, y, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
    x, x_test = x.astype(np.float64), x_test.astype(np.float64)
    if seed == 0:
        return x, y, x_test, y_test
    both, labels = np.concatenate([x, x_test]), np.concatenate([y, y_test])
    if name == "Tecator":
        order = np.random.default_rng(seed).permutation(len(both))
        train, test = order[: len(x)], order[len(x) :]
    else:
        train, test = next(StratifiedShuffleSplit(1, train_size=len(x), random_state=seed).split(both, labels))
    return both[train], labels[train], both[test], labels[test]


@dataclass(frozen=True)
class Signals(harness.Run):
    """One model, or one rival, of one data set."""

    data: str
    model: str  # an orbit and a feature map, or the name of a rival
    orbit: str = ""
    feature_map: str = ""
    seed: int = 0

    def name(self) -> str:
        return harness.slug(self.data, self.model, self.seed)

    def measure(self, device: str) -> Record:
        x, y, x_test, y_test = load(self.data, self.seed)
        start = time.perf_counter()
        if not self.orbit:
            rival = rivals.CLASSIFIERS.get(self.model)
            arguments = (x, y, x_test, self.seed)
            predicted = rivals.pls(self.model, *arguments) if rival is None else rival(*arguments)
            return {"seconds": round(time.perf_counter() - start, 1), "metrics": _metrics(predicted, y_test)}
        kind = InvariantGPRegressor if self.data == "Tecator" else InvariantGPClassifier
        model = kind(
            make_orbit(self.orbit), feature_map=MAPS[self.feature_map](), device=device, random_state=self.seed
        )
        model.fit(x, y)
        seconds = round(time.perf_counter() - start, 1)
        evidence = model.evidence_
        found: dict[str, Any] = {
            "seconds": seconds,
            "evidence": {"value": round(evidence.value, 3), "stderr": round(evidence.stderr, 3)},
            "orbit": {name: _rounded(value) for name, value in model.orbit_.describe().to_dict().items()},
            "metrics": _metrics(model.predict(x_test), y_test),
        }
        if isinstance(model, InvariantGPRegressor):
            low, high = model.predict_quantiles(x_test, (0.05, 0.95)).T
            found["metrics"]["covered"] = int(((low <= y_test) & (y_test <= high)).sum())
        return found


def _rounded(value: Any) -> Any:
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else float(f"{value:.3g}")


def _metrics(predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    if truth.dtype.kind == "f":
        return {"rmse": round(float(np.sqrt(np.square(predicted - truth).mean())), 4)}
    return {"accuracy": round(float((predicted == truth).mean()), 4)}


def candidates(data: str, seed: int) -> list[tuple[str, str]]:
    """The models that the evidence chooses from: orbits and feature maps."""
    if data == "Tecator":
        return [(orbit, feature_map) for feature_map in FOR_SPECTRA for orbit in OF_SPECTRA]
    orbits = {"values": ORBITS, "slope": OF_SLOPES, "curvature": OF_SLOPES, "shapes": OF_SHAPES}
    if data == "OSULeaf":
        orbits = {feature_map: ORBITS if feature_map == "values" else ("none",) for feature_map in orbits}
    return [(o, m) for m in FOR_CLASSES for o in orbits[m] if not seed or o in ON_RESAMPLES.get(m, ("none",))]


def plan(options: argparse.Namespace) -> list[Signals]:
    """Every model and rival of every data set and seed: those without an orbit first, so that all resamples soon count.

    Of each seed, the data set that takes longest comes first.
    """
    kept = list(harness.load(options.out / "signals.jsonl").values())
    known = {_key(record) for line in kept if "models" in line for record in unpacked([line])}
    runs = []
    for seed in range(options.seeds):
        for data in sorted(options.data, key=lambda data: data != "OSULeaf"):
            runs += _runs(data, seed, options) if data in FIVE or not seed else []
    runs.sort(key=lambda run: run.orbit not in ("", "none"))
    wanted = [run for run in runs if run.orbit in ("", "none") or not options.without_orbits]
    return [run for run in wanted if (run.data, run.model, run.seed) not in known]


def _runs(data: str, seed: int, options: argparse.Namespace) -> list[Signals]:
    usual = rivals.PREPARATIONS if data == "Tecator" else rivals.CLASSIFIERS
    runs = [Signals(data, name, seed=seed) for name in usual if name != "MiniROCKET" or find_spec("aeon")]
    if not options.rivals:
        chosen = [(o, m) for o, m in candidates(data, seed) if m in options.maps and o in (options.orbits or [o])]
        runs += [Signals(data, f"{o}, {m}", o, m, seed) for o, m in chosen]
    return runs


def _key(record: Record) -> tuple[str, str, int]:
    return tuple(record["settings"][name] for name in ("data", "model", "seed"))


def packed(records: Records) -> list[Record]:
    """The same in less space: one line for the models of a data set and seed that ran on the same machine and commit.

    Of each it has seconds and accuracy, then evidence and its error, if any. Of resamples these are in tenths of a nat,
    without what was learned.
    """
    lines: dict[str, Record] = {}
    for record in unpacked(records):
        data, model, seed = _key(record)
        versions, hardware = {"torch": record["versions"]["torch"]}, record["hardware"]
        record["commit"], record["versions"] = record["commit"][:9], versions
        record["hardware"] = {name: hardware[name] for name in ("cpus", "gpu") if name in hardware}
        if data == "Tecator":
            lines[record["name"]] = record
            continue
        head = {name: record[name] for name in ("commit", "versions", "hardware")}
        name = harness.slug(data, seed, head["commit"], *versions.values(), *head["hardware"].values())
        line = lines.setdefault(name, {"name": name, **head, "settings": {"data": data, "seed": seed}, "models": {}})
        evidence = [round(nats, 1 if seed else 3) for nats in record.get("evidence", {}).values()]
        learned = [record["orbit"]] if record.get("orbit") and not seed else []
        line["models"][model] = [record["seconds"], record["metrics"]["accuracy"], *evidence, *learned]
    return list(lines.values())


def unpacked(records: Records) -> list[Record]:
    """One record for each model."""
    found = []
    for record in records:
        for model, (seconds, accuracy, *further) in record.get("models", {}).items():
            one = {**record, "settings": {**record["settings"], "model": model}}
            del one["models"]
            one |= {"seconds": seconds, "metrics": {"accuracy": accuracy}}
            if further:
                one |= {"evidence": dict(zip(("value", "stderr"), further, strict=False)), "orbit": dict(*further[2:])}
            found.append(one)
        if "models" not in record:
            found.append({**record})
    return found


def picked(records: Records, data: str, seed: int) -> Record | None:
    """The model with the highest evidence; of a resample, among those that all resamples have."""
    found = [r for r in records if (r["settings"]["data"], r["settings"]["seed"]) == (data, seed) and "evidence" in r]
    if seed:
        found = [r for r in found if r["settings"]["model"] in in_all_resamples(records, data)]
    return max(found, key=lambda r: r["evidence"]["value"], default=None)


def in_all_resamples(records: Records, data: str) -> set[str]:
    """The models that all resamples have, of those that count."""
    seeds = resamples(records, data)
    found = [
        {r["settings"]["model"] for r in records if (r["settings"]["data"], r["settings"]["seed"]) == (data, s)}
        for s in seeds
    ]
    return set.intersection(*found) if found else set()


def resamples(records: Records, data: str) -> list[int]:
    """The seeds that count, apart from the archive's own split: those with values and shapes without an orbit."""
    known = {_key(r) for r in records if "evidence" in r}
    seeds = sorted({seed for name, _, seed in known if seed and name == data})
    return [seed for seed in seeds if all((data, f"none, {m}", seed) in known for m in ("values", "shapes"))]


def accuracies(records: Records, data: str, model: str | None) -> dict[int, float]:
    """Test accuracies by seed: of this model or rival, or of what the evidence picks."""
    if model is None:
        chosen = {seed: found for seed in (0, *resamples(records, data)) if (found := picked(records, data, seed))}
    else:
        chosen = {
            r["settings"]["seed"]: r
            for r in records
            if (r["settings"]["data"], r["settings"]["model"]) == (data, model)
        }
    return {seed: r["metrics"]["accuracy"] for seed, r in chosen.items()}


def choices(records: Records) -> str:
    """Accuracy of the evidence's choice beside rivals run here and published ones."""
    records = unpacked(records)
    here = {name: name for name in rivals.CLASSIFIERS} | {"RBF GP": "none, values"}
    head = ["data", "picked by the evidence", "accuracy", *here, "published: DTW, BOSS, shapelets, COTE"]
    lines = []
    for data in (*FIVE, "BasicMotions"):
        first = picked(records, data, 0)
        if first is None:
            continue
        known = [f"{value:.3f}" for value in PUBLISHED.get(data, ())]
        cells = [_over_seeds(accuracies(records, data, model)) for model in (None, *here.values())]
        lines.append([data, first["settings"]["model"], *cells, ", ".join(known)])
    return harness.markdown(head, lines) if lines else ""


def table(records: Records) -> str:
    """The evidence's choice; then spectra; then evidence by orbit."""
    parts = list(filter(None, [choices(records)]))
    records = unpacked(records)
    spectra = sorted((r for r in records if _is(r, "Tecator")), key=lambda r: r["metrics"]["rmse"])
    if spectra:
        best = picked(records, "Tecator", 0)
        rows = [
            [
                f"**{r['settings']['model']}**" if r is best else r["settings"]["model"],
                f"{r['metrics']['rmse']:.3f}",
                f"{r['evidence']['value']:,.1f}" if "evidence" in r else "",
                f"{r['metrics']['covered']} of 43" if "covered" in r["metrics"] else "",
            ]
            for r in spectra
        ]
        parts.append(harness.markdown(["Tecator", "test RMSE", "evidence (nats)", "in 90 % intervals"], rows))
    for feature_map in FOR_CLASSES:
        rows = [[data, *gains] for data in FIVE if any(gains := _gains(records, data, feature_map))]
        if rows:
            parts.append(harness.markdown([f"of {feature_map}: nats above none", *ORBITS[1:]], rows))
    times = {data: found for data in SETS if (found := _times(records, data))}
    if times:
        rows = [[data, *(f"{seconds:.0f}" for seconds in found)] for data, found in times.items()]
        titles = [
            "seconds, a core for each model",
            "the picked model",
            "shapes without an orbit",
            "default comparison on two cores",
        ]
        parts.append(harness.markdown(titles, rows))
    return "\n\n".join(parts)


def _times(records: Records, data: str) -> tuple[float, float, float] | None:
    """Seconds of one fit of what was picked, of shapes alone, and of what ``orbitgp compare`` tries, two at a time."""
    seconds = {r["settings"]["model"]: r["seconds"] for r in records if _is(r, data) and "gpu" not in r["hardware"]}
    best = picked(records, data, 0)
    needed = ("none, shapes", *BY_DEFAULT)
    if best is None or best["settings"]["model"] not in seconds or not all(name in seconds for name in needed):
        return None
    return seconds[best["settings"]["model"]], seconds["none, shapes"], sum(seconds[name] for name in BY_DEFAULT) / 2


def _is(record: Record, data: str) -> bool:
    return (record["settings"]["data"], record["settings"]["seed"]) == (data, 0)


def _over_seeds(values: dict[int, float]) -> str:
    """The archive's split, and behind it the mean of the resamples."""
    further = [value for seed, value in values.items() if seed]
    return (f"{values[0]:.3f}" if 0 in values else "") + (f" ({np.mean(further):.3f})" if further else "")


def _evidence(records: Records, data: str) -> dict[str, tuple[float, float]]:
    return {
        r["settings"]["model"]: (r["evidence"]["value"], r["evidence"]["stderr"])
        for r in records
        if _is(r, data) and "evidence" in r
    }


def _gains(records: Records, data: str, feature_map: str) -> list[str]:
    found = _evidence(records, data)
    none = found.get(f"none, {feature_map}")
    values = [found.get(f"{orbit}, {feature_map}") for orbit in ORBITS[1:]]
    return ["" if one is None or none is None else f"{one[0] - none[0]:+.1f}" for one in values]


def check(records: Records) -> Claims:
    """What is to be shown; what has not been run is not claimed."""
    claims = {}
    records = unpacked(records)
    chosen = {data: picked(records, data, 0) for data in SETS}
    five = [found["metrics"]["accuracy"] for data in FIVE if (found := chosen[data])]
    if len(five) == len(FIVE):
        claims[f"mean accuracy of the evidence's choice on the five sets is {np.mean(five):.3f}, at least 0.92"] = (
            np.mean(five) >= 0.92
        )
    if leaves := chosen["OSULeaf"]:
        accuracy = leaves["metrics"]["accuracy"]
        claims[f"OSULeaf: {accuracy:.3f}, at least 0.85"] = accuracy >= 0.85
    if all(resamples(records, data) for data in FIVE):
        means = [
            np.mean([accuracy for seed, accuracy in accuracies(records, data, None).items() if seed]) for data in FIVE
        ]
        claims[f"as a mean of resamples it is {np.mean(means):.3f}, at least 0.92"] = np.mean(means) >= 0.92
        claims[f"OSULeaf, as a mean of resamples: {means[-1]:.3f}, at least 0.85"] = means[-1] >= 0.85
    if len(five) == len(FIVE):
        sure = {data: {m: _prefers_time(records, data, (m,)) for m in FOR_CLASSES} for data in FIVE}
        seen: dict[str, list[bool | None]] = {
            **{f"g sees {m}": [sure[data][m] for data in FIVE] for m in FOR_CLASSES},
            "g sees the same on both sides, whichever of these": [any(sure[data].values()) for data in FIVE],
            "each side has its best view": [_prefers_time(records, data, FOR_CLASSES) for data in FIVE],
        }
        better = "an orbit in time is better than none and than gain and offset for certain"
        for where, certain in seen.items():
            if certain != [None] * len(FIVE):
                count = sum(one is True for one in certain)
                claims[f"where {where}, {better} on {count} of five, at least three"] = count >= 3
    if times := [spent[2] for data in FIVE if (spent := _times(records, data))]:
        slowest = f"{max(times):.0f} s on two cores for the slowest of {len(times)} sets"
        said = f"the default comparison takes {slowest}, under 120 s"
        claims[said] = max(times) < 120
    if spectra := chosen["Tecator"]:
        best = min(r["metrics"]["rmse"] for r in records if _is(r, "Tecator") and "evidence" not in r)
        metrics = spectra["metrics"]
        claims[f"Tecator: RMSE {metrics['rmse']:.3f}, below the best of PLS ({best:.3f})"] = metrics["rmse"] < best
        claims[f"Tecator: {metrics['covered']} of 43 in their 90 % intervals, 35 to 42"] = (
            35 <= metrics["covered"] <= 42
        )
    return claims


def _prefers_time(records: Records, data: str, maps: tuple[str, ...]) -> bool | None:
    """Whether ``compare`` is certain of the best orbit in time, against none and gain and offset; None without
    records."""
    found = _evidence(records, data)
    known = {o: [found[name] for m in maps if (name := f"{o}, {m}") in found] for o in ORBITS}
    best = {o: max(values) for o, values in known.items() if values}
    standings = {o: Standing(o, value, value - 2 * error, value + 2 * error) for o, (value, error) in best.items()}
    times = [standing for o, standing in standings.items() if o in TIME]
    others = [standing for o, standing in standings.items() if o not in TIME]
    if not times or not others:
        return None
    ahead = max(times, key=lambda standing: standing.value)
    return all(Difference(ahead, other).certain for other in others)


EXPERIMENT = harness.Experiment(
    "signals",
    __doc__,
    plan,
    table,
    check,
    seeds=11,
    pack=packed,
    options={
        "--data": {"nargs": "+", "choices": SETS, "default": list(SETS), "help": "only some of the data sets"},
        "--maps": {"nargs": "+", "choices": list(MAPS), "default": list(MAPS), "help": "only some of the feature maps"},
        "--orbits": {"nargs": "+", "help": "only some of the orbits"},
        "--rivals": {"action": "store_true", "help": "only the rivals"},
        "--without-orbits": {"action": "store_true", "help": "only rivals and models without an orbit"},
    },
)
