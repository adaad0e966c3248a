"""How ``learn`` and ``compare`` begin, with a new run folder or with one that goes on, and how they stop."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.configuration import check, configuration
from orbitgp.cli.errors import INTERRUPTED
from orbitgp.cli.own import is_own
from orbitgp.cli.processes import check_shared, first_does
from orbitgp.cli.run_folder import RunFolder

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
    check_more: Callable[[dict[str, Any], Data], object] = lambda config, data: None,
) -> tuple[RunFolder, dict[str, Any], Data]:
    """The folder, the configuration and the data of a run; what cannot work is an error before the folder is made."""
    if not quiet:  # at once: loading the libraries alone takes seconds
        typer.echo(f"reading {options.data if resume is None else resume} …", err=True)
    if resume is not None:
        folder, config = RunFolder.unfinished(resume, command)
        check_named_again(config, orbits, settings.feature_map)
        data = DataOptions(**config["data"]).load(config["settings"]["seed"], config["orbits"])
    else:
        data = options.load(settings.seed, orbits)
        chosen = list(dict.fromkeys(orbits or _default_orbits(command, data)))
        config = configuration(command, options, settings, data, chosen, asked)
        check(config, data)
        check_more(config, data)
        check_shared(len(data.y_train))
        folder = first_does(lambda: _new_folder(out, config, data))
    if not quiet:
        typer.echo(f"{data.name}: {config['task_reason']}", err=True)
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    return folder, config, data


@contextmanager
def stoppable(folder: RunFolder) -> Iterator[None]:
    """Say how to go on after Ctrl-C, if there is anything to go on with; else remove the folder."""
    try:
        with removed_if_empty(folder):
            yield
    except KeyboardInterrupt:
        if not folder.path.exists():
            raise
        done = f"; models that are done ({len(list(folder.models.glob('*')))}) are kept" if folder.models.is_dir() else ""
        typer.echo(f"stopped{done}: go on with {folder.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def removed_if_empty(folder: RunFolder) -> Iterator[None]:
    """Remove the folder if the block fails before anything is there to go on with."""
    try:
        yield
    except BaseException:
        worth = [folder.model, folder.checkpoint, folder.baseline, *folder.models.glob("*")]
        if not any(path.exists() for path in worth):
            with suppress(OSError):
                folder.config.unlink(missing_ok=True)
                if folder.models.is_dir():
                    folder.models.rmdir()
                folder.path.rmdir()
        raise


def check_named_again(config: dict[str, Any], orbits: Sequence[str], feature_map: str) -> None:
    """A run that is opened again executes files of the user only if they are named again."""
    wanted = [("--orbit", orbit) for orbit in config["orbits"] if is_own(orbit) and orbit not in orbits]
    if is_own(known := config["settings"]["feature_map"]) and known != feature_map:
        wanted.append(("--feature-map", known))
    if wanted:
        raise ValueError(f"this run executes a file of yours: name it again, {shlex.join(w for pair in wanted for w in pair)}.")


def _default_orbits(command: str, data: Data) -> list[str]:
    """Those that the data may have: all to compare, the first one to learn."""
    signals, images = ["timeshift", "timewarp", "gain*offset"], ["rotation", "affine"]
    orbits = signals if data.has_signals else images if data.has_images else ["noise"]
    return ["none", *orbits] if command == "compare" else orbits[:1]


def _new_folder(out: Path | None, config: dict[str, Any], data: Data) -> RunFolder:
    folder = create(out, config["data"]["data"], config["orbit"] if config["command"] == "learn" else "compare")
    with removed_if_empty(folder):
        # An exact model holds the data, and so may a checkpoint; the rest is small.
        needed = len(config["orbits"]) * (3 * int(data.x_train.nbytes) + 16_000_000)
        free = shutil.disk_usage(folder.path).free
        if free < needed:
            raise OSError(
                f"{folder.path} lies on a disk with {free / 1e6:,.0f} MB free, and the run needs about {needed / 1e6:,.0f} MB: "
                "make room, or choose another --out."
            )
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
