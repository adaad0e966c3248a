"""How ``learn`` and ``compare`` begin, with a new run folder or with one that goes on, and how they stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.configuration import check, configuration
from orbitgp.cli.errors import INTERRUPTED
from orbitgp.cli.own import check_named_again
from orbitgp.cli.processes import check_shared, rank
from orbitgp.cli.run import Run

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data


def begin(
    command: str,
    options: DataOptions,
    settings: TrainingSettings,
    orbits: Sequence[str],
    asked: dict[str, bool | float | str | None],
    out: Path | None,
    resume: Path | None,
    quiet: bool,
) -> Run:
    """The run of this command; what cannot work is an error before the folder is made."""
    if not quiet:  # at once: loading the libraries alone takes seconds
        typer.echo(f"reading {options.data if resume is None else resume} …", err=True)
    if resume is not None:
        run = Run.unfinished(resume, command)
        check_named_again(run.config, orbits, settings.feature_map)
        data = DataOptions(**run.config["data"]).load(run.config["settings"]["seed"], run.config["orbits"])
    else:
        from orbitgp.inference.processes import broadcast

        data = options.load(settings.seed, orbits)
        chosen = list(dict.fromkeys(orbits or _default_orbits(command, data)))
        config = configuration(command, options, settings, data, chosen, asked)
        check(config, data)
        check_shared(len(data.y_train))
        run = broadcast(Run.create(out, config) if rank() == 0 else None)
    run.data, run.quiet = data, quiet
    run.say(f"{data.name}: {run.config['task_reason']}")
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    return run


@contextmanager
def stoppable(run: Run) -> Iterator[None]:
    """Say how to go on after Ctrl-C, if there is anything to go on with. Else, remove the folder, also after an error."""
    try:
        yield
    except BaseException as error:
        models = list(run.models.glob("*"))
        if not any(path.exists() for path in (run.model, run.checkpoint, run.baseline, *models)):
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


def _default_orbits(command: str, data: Data) -> list[str]:
    """Those that the data may have: all to compare, the first one to learn."""
    signals, images = ["timeshift", "timewarp", "gain*offset"], ["rotation", "affine"]
    orbits = signals if data.has_signals else images if data.has_images else ["noise"]
    return ["none", *orbits] if command == "compare" else orbits[:1]
