"""How ``learn``, ``compare`` and ``advise`` begin, with a new run folder or with one that goes on, and how they stop.

What a run is made from is checked before anything is written.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.arguments import DataOptions, OutputOptions, TrainingSettings
from orbitgp.cli.models import OF_IMAGES, OF_SIGNALS
from orbitgp.cli.processes import own_rows, rank
from orbitgp.cli.run import Run, orbit_for

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data

INTERRUPTED = 130  # the exit code after Ctrl-C
OF_PICTURES = (  # augmentations that pictures are asked about
    *("none", "flip", "flip(False, True)", "rotation", "translation"),
    *("scale", "shear", "deformation", "brightness", "contrast"),
)
Asked = dict[str, bool | float | str | None]  # the options that only this command has


def begin(
    command: str, options: DataOptions, settings: TrainingSettings, out: OutputOptions, orbits: list[str], asked: Asked
) -> Run:
    """The run of this command; what cannot work is an error before the folder is made."""
    begun = time.perf_counter()
    if not out.quiet:  # at once: loading the libraries alone takes seconds
        typer.echo(f"reading {out.resume or options.data} …", err=True)
    from orbitgp.datasets.files import load
    from orbitgp.inference.processes import broadcast
    from orbitgp.orbits.parse import make_orbit

    run, seed = None, settings.seed
    if out.resume is not None:
        run = Run.unfinished(out.resume, command)
        wanted = {f.name: v for f in fields(settings) if (v := getattr(settings, f.name)) != f.default}
        wanted |= {"orbit": list(orbits)} if orbits else {}
        kept = {**run.config["settings"], "orbit": run.config["orbits"]}
        if given := [f"--{name.replace('_', '-')}" for name in wanted if wanted[name] != kept[name]]:
            raise ValueError(f"a resumed run keeps its options: leave out {', '.join(given)}, or begin another run.")
        options, orbits, seed = DataOptions(**run.config["data"]), run.config["orbits"], run.config["settings"]["seed"]
    data = load(options.data, options.read_options(), options.test, options.test_fraction, options.max_data, seed)
    orbits = list(dict.fromkeys(orbits or _default_orbits(command, data)))
    if options.standardise and not (data.has_images or data.options.signal):
        data = data.standardised([make_orbit(orbit, columns=data.options.features) for orbit in orbits])
    if run is None:
        config = configuration(command, options, settings, data, orbits, asked)
        _check(config, data)
        run = broadcast(Run.create(out.out, config) if rank() == 0 else None)
    run.data, run.quiet, run.json = data, out.quiet, out.json_
    run.begun, run.read_seconds = begun, time.perf_counter() - begun
    run.say(f"{data.name}: {run.config['task_reason']}")
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    return run


@contextmanager
def stoppable(run: Run) -> Iterator[None]:
    """Say how to go on after Ctrl-C if there is anything to go on with; else remove the folder, also after an error."""
    try:
        yield
    except BaseException as error:
        models = list(run.models.glob("*"))
        if not any(path.exists() for path in (run.model, run.checkpoint, *models)):
            with suppress(OSError):
                (run.path / "config.json").unlink(missing_ok=True)
                if run.models.is_dir():
                    run.models.rmdir()
                run.path.rmdir()
        if not isinstance(error, KeyboardInterrupt) or not run.path.exists():
            raise
        done = f"; models that are done ({len(models)}) are kept" if run.models.is_dir() else ""
        typer.echo(f"stopped{done}: go on with {run.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def configuration(
    command: str, options: DataOptions, settings: TrainingSettings, data: Data, orbits: list[str], asked: Asked
) -> dict[str, Any]:
    """All that is needed to repeat a run: the content of ``config.json``."""
    import torch

    import orbitgp

    chosen = {f.name: v for f in fields(options) if (v := getattr(options, f.name)) != f.default and f.name != "data"}
    chosen |= {"orbit": orbits, **{k: v for k, v in asked.items() if v is not True}, **asdict(settings)}
    task, reason = (data.task, data.task_reason) if options.task == "auto" else (options.task, "as --task says")
    column = data.options.target
    files = ("data", "targets", "test", "data_dir")
    paths = {name: str(Path(p).resolve()) for name in files if (p := getattr(options, name)) and Path(p).exists()}
    of = "" if column is None else f" of column {column!r} ({'--target' if options.target else 'by its name'})"
    return {
        "orbitgp": orbitgp.__version__,
        "command": command,
        "again": shlex.join(["orbitgp", command, options.data, *_words(chosen)]),
        "data": {**asdict(options), **paths},  # which hold in every working directory
        "name": data.name,
        "orbits": orbits,
        "orbit": orbits[0],
        "task": task,
        "task_reason": f"{task}{of}: {reason}",  # "regression of column 'yield' (--target): the targets are numbers"
        "settings": asdict(settings),
        "threads": torch.get_num_threads(),
        "read_options": asdict(data.options),
        "inputs": [float(data.x.min()), float(data.x.max())],
        "asked": asked,
    }


def _words(options: dict[str, Any]) -> list[str]:
    """Options as one would type them; those without a value are left out."""
    words = []
    for field, value in options.items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [word for v in (value if isinstance(value, list) else [value]) for word in (f"--{name}", str(v))]
    return words


def _check(config: dict[str, Any], data: Data) -> None:
    """Raise an error for a task, orbits and feature maps that do not fit the data."""
    import torch

    from orbitgp.orbits import GaussianNoise

    y = data.y
    own_rows(y)  # an error where there are fewer rows than processes
    if config["task"] == "regression" and y.dtype.kind in "US":
        raise ValueError(f"regression needs numbers, but the targets are words, such as {y[0]!s:.40}.")
    if config["task"] == "classification" and y.dtype.kind == "f" and len(odd := y[y != y.round()]):
        raise ValueError(f"classification needs classes, but the targets are decimals, such as {odd[0]:g}.")
    if config["data"]["interval"] is not None and not data.options.signal:
        raise ValueError("--interval is for signals: say that the rows are signals, with --signal.")
    shape, advice = data.input_shape, "say what shape the rows have, as in --image-shape 28x28."
    without_numbers = all(scale == (0.0, 1.0) for scale in data.options.scales or [()])
    for orbit in config["orbits"]:
        try:
            made = orbit_for(config, orbit, data)
            made.check(torch.Size(shape))
            if without_numbers and any(isinstance(part, GaussianNoise) for part in made.modules()):
                raise ValueError("noise is for columns of numbers that vary, and this table has none.")
        except ValueError as error:
            raise ValueError(str(error).replace("set image_shape.", advice)) from None
    if config["settings"]["ard"] == "yes" and data.options.scales is None:
        raise ValueError("--ard yes is for tables whose columns are standardised.")
    feature_map = config["settings"]["feature_map"]
    if feature_map in OF_IMAGES and (data.options.signal or len(shape) not in (2, 3)):
        raise ValueError(f"--feature-map {feature_map} is for images, but the inputs have shape {shape}: {advice}")
    if feature_map in OF_SIGNALS and not data.options.signal:
        raise ValueError(f"--feature-map {feature_map} is for signals: say that the rows are signals, with --signal.")


def _default_orbits(command: str, data: Data) -> list[str]:
    """Those that the data may have: all to compare, the first one to learn, which for a table is none."""
    if command == "advise":
        if not data.has_images:
            raise ValueError("orbitgp advise is for pictures: orbitgp compare takes signals and tables.")
        colours = ["saturation", "hue"] if len(data.input_shape) == 3 and data.input_shape[0] == 3 else []
        return [*OF_PICTURES, *colours]
    if data.options.signal or data.has_images:
        orbits = ["timeshift", "timewarp", "gain*offset"] if data.options.signal else ["rotation", "affine"]
        return ["none", *orbits] if command == "compare" else orbits[:1]
    from orbitgp.comparison.symmetry import likely_generators

    orbits = likely_generators(data.x, data.options.features)
    if command == "compare" and not orbits:
        raise ValueError(
            "no two columns look alike, and none is symmetric about zero: orbitgp learn trains a model without "
            'invariance; or say what to compare, as in --orbit none --orbit "swap(left, right)" --orbit noise.'
        )
    if command == "learn" and orbits:
        data.notes.append(f"orbitgp compare tells whether these columns have an invariance: {', '.join(orbits)}.")
    return ["none", *orbits] if command == "compare" else ["none"]
