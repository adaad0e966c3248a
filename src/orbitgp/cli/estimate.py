"""How long a run will take, said before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data
    from orbitgp.inference.cost import Workload

_LONG = 20.0  # seconds, above which a person is told beforehand
_OVERHEAD = 2.5  # seconds of a fit that do not depend on the size of the data
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side
_STEPS = 30  # of a fit without an orbit
_LAST_STEPS = 20  # with the most draws


def print_estimate(data: Data, config: dict[str, Any], orbits: Sequence[Any], quiet: bool, workers: int = 1) -> None:
    """Print how long exact training will take, if that is long, and what would take half of that or less."""
    from orbitgp.estimators.defaults import NUM_INDUCING
    from orbitgp.estimators.validation import usable_device
    from orbitgp.inference.cost import LEAST_SAMPLES, Workload
    from orbitgp.training.options import TrainingOptions

    settings, device = config["settings"], usable_device(config["settings"]["device"])
    if quiet or settings["inference"] == "sparse" or settings["num_inducing"] or settings["batch_size"]:
        return

    def work(orbit: Any, dim: int) -> Workload:
        return Workload(getattr(orbit, "size", settings["num_samples"] or LEAST_SAMPLES), dim, device)

    def together(rows: int, dim: int) -> float:
        return sum(_seconds(work(orbit, dim), rows, orbit, settings) for orbit in orbits) / workers

    rows, dim = len(data.x_train), int(data.x_train[0].size)
    most = max(work(orbit, dim).learning(rows).seconds for orbit in orbits)
    seconds = together(rows, dim)
    may_be_sparse = settings["inference"] == "auto" and rows > NUM_INDUCING
    if (most > TrainingOptions().exact_seconds and may_be_sparse) or seconds < _LONG:
        return
    offers = {f"--max-data {rows // 2}": together(rows // 2, dim)} if rows // 2 >= _FEWEST else {}
    if data.read_options.colour and dim > _VALUES:
        offers[f"--resize {_SIDE}x{_SIDE}"] = together(rows, _SIDE**2 * (3 if data.read_options.colour == "RGB" else 1))
    quicker = [f"{option} would take {_duration(less)}" for option, less in offers.items() if less <= seconds / 2]
    typer.echo("; ".join([f"this will take about {_duration(seconds)} on a free machine", *quicker]), err=True)


def _seconds(work: Workload, rows: int, orbit: Any, settings: dict[str, Any]) -> float:
    """What a fit takes on one core: starts, a climb, and for orbits that learn several quantities one with the most draws.

    Fits of 100 and 300 digits, of images of 16x16 pixels and of a table, with no orbit, noise, rotations and affine maps, took
    0.7 to 1.7 times as long.
    """
    from orbitgp.training.options import TrainingOptions

    quantities = sum(not name.endswith("elements") for name in orbit.describe())
    seconds = _OVERHEAD * (1 + 2 * quantities) + 2 * work.learning(rows).seconds
    if quantities > 1:
        draws = settings["num_samples"] or work.most_samples(rows, rows, TrainingOptions().exact_seconds)
        seconds += _LAST_STEPS * replace(work, samples=draws).evaluation(rows).seconds
    most = settings["max_steps"] or inf
    return float(min(seconds * min(1.0, most / (_STEPS * (1 + 2 * quantities))), settings["max_seconds"] or inf))


def _duration(seconds: float) -> str:
    """As in "40 s", "4 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
