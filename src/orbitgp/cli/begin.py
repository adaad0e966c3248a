"""How ``learn`` and ``compare`` begin, with a new run folder or with one that goes on, and how they stop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.configuration import check, configuration
from orbitgp.cli.errors import INTERRUPTED
from orbitgp.cli.own import check_named_again
from orbitgp.cli.processes import check_shared, rank
from orbitgp.cli.run_folder import RunFolder

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data


@dataclass(frozen=True)
class Run:
    """A run that has begun: its folder, the content of its ``config.json``, and its data."""

    folder: RunFolder
    config: dict[str, Any]
    data: Data
    quiet: bool

    def say(self, text: str) -> None:
        """Tell a person who watches how far the run is."""
        if not self.quiet:
            typer.echo(text, err=True)


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
        folder, config = RunFolder.unfinished(resume, command)
        check_named_again(config, orbits, settings.feature_map)
        data = DataOptions(**config["data"]).load(config["settings"]["seed"], config["orbits"])
    else:
        from orbitgp.inference.processes import broadcast

        data = options.load(settings.seed, orbits)
        chosen = list(dict.fromkeys(orbits or _default_orbits(command, data)))
        config = configuration(command, options, settings, data, chosen, asked)
        check(config, data)
        check_shared(len(data.y_train))
        folder = broadcast(_new_folder(out, config) if rank() == 0 else None)
    run = Run(folder, config, data, quiet)
    run.say(f"{data.name}: {config['task_reason']}")
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    return run


@contextmanager
def stoppable(folder: RunFolder) -> Iterator[None]:
    """Say how to go on after Ctrl-C, if there is anything to go on with. Else, remove the folder, also after an error."""
    try:
        yield
    except BaseException as error:
        models = list(folder.models.glob("*"))
        if not any(path.exists() for path in (folder.model, folder.checkpoint, folder.baseline, *models)):
            with suppress(OSError):
                folder.config.unlink(missing_ok=True)
                if folder.models.is_dir():
                    folder.models.rmdir()
                folder.path.rmdir()
        if not isinstance(error, KeyboardInterrupt) or not folder.path.exists():
            raise
        done = f"; models that are done ({len(models)}) are kept" if folder.models.is_dir() else ""
        typer.echo(f"stopped{done}: go on with {folder.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _default_orbits(command: str, data: Data) -> list[str]:
    """Those that the data may have: all to compare, the first one to learn."""
    signals, images = ["timeshift", "timewarp", "gain*offset"], ["rotation", "affine"]
    orbits = signals if data.has_signals else images if data.has_images else ["noise"]
    return ["none", *orbits] if command == "compare" else orbits[:1]


def _new_folder(out: Path | None, config: dict[str, Any]) -> RunFolder:
    folder = create(out, config["data"]["data"], config["orbit"] if config["command"] == "learn" else "compare")
    claim(folder, config)
    return folder


def create(out: Path | None, data: str, what: str) -> RunFolder:
    """A new folder: ``out``, or runs/DATA-WHAT with a number if that exists."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise _taken(out)
        out.mkdir(parents=True, exist_ok=True)
        return RunFolder(out)
    stem, number = f"{_slug(Path(data).stem or data)}-{_slug(what)}", 1
    while True:
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            return RunFolder(path)
        except FileExistsError:  # another run may take the name at the same moment
            number += 1


def claim(folder: RunFolder, config: dict[str, Any]) -> None:
    """Write the configuration, which makes the folder that of this run and of no other."""
    try:
        folder.write_json(folder.config, config, new=True)
    except FileExistsError:
        raise _taken(folder.path) from None


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} exists already: choose another --out, or go on with it, --resume {path}, if it was stopped."
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "run"
