"""How long a run will take, said before it begins: what its plan says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data

_LONG = 20.0  # seconds, above which a person is told beforehand
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side


def print_estimate(data: Data, config: dict[str, Any], orbits: Sequence[Any], quiet: bool, workers: int = 1) -> None:
    """Print how long exact training will take, if that is long, and what would take half of that or less."""
    from orbitgp.estimators.validation import usable_device
    from orbitgp.planning.plan import duration, exact_seconds

    settings, device = config["settings"], usable_device(config["settings"]["device"])
    if quiet or settings["inference"] == "sparse" or settings["num_inducing"] or settings["batch_size"]:
        return
    limits = {name: settings[name] for name in ("num_samples", "max_steps", "max_seconds")}

    def together(rows: int, dim: int) -> float | None:
        fits = [exact_seconds(rows, dim, orbit, device, **limits) for orbit in orbits]
        known = [seconds for seconds in fits if seconds is not None]
        return sum(known) / workers if len(known) == len(fits) else None

    rows, dim = len(data.x_train), int(data.x_train[0].size)
    seconds = together(rows, dim)
    if seconds is None or seconds < _LONG:
        return
    offers = {f"--max-data {rows // 2}": together(rows // 2, dim)} if rows // 2 >= _FEWEST else {}
    if data.read_options.colour and dim > _VALUES:
        offers[f"--resize {_SIDE}x{_SIDE}"] = together(rows, _SIDE**2 * (3 if data.read_options.colour == "RGB" else 1))
    less = {option: other for option, other in offers.items() if other is not None and other <= seconds / 2}
    quicker = [f"{option} would take {duration(other)}" for option, other in less.items()]
    typer.echo("; ".join([f"this will take about {duration(seconds)} on a free machine", *quicker]), err=True)
