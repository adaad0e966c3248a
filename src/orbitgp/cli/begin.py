"""How ``learn`` and ``compare`` begin, with a new run folder or with one that goes on, and how they stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from math import sqrt
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

_CLOSE = 0.1  # the largest difference of cumulative distributions of columns that look alike
_MOST_COLUMNS, _MOST_ORBITS = 20, 4  # columns whose distributions are compared, and orbits of these to train


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
        options = DataOptions(**run.config["data"])
        data = options.scaled(options.load(run.config["settings"]["seed"]), run.config["orbits"])
    else:
        from orbitgp.inference.processes import broadcast

        data = options.load(settings.seed)
        chosen = list(dict.fromkeys(orbits or _default_orbits(command, data)))
        data = options.scaled(data, chosen)
        config = configuration(command, options, settings, data, chosen, asked)
        check(config, data)
        check_shared(len(data.y))
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
    """Those that the data may have: all to compare, the first one to learn, which for a table is none."""
    if data.options.signal or data.has_images:
        orbits = ["timeshift", "timewarp", "gain*offset"] if data.options.signal else ["rotation", "affine"]
        return ["none", *orbits] if command == "compare" else orbits[:1]
    orbits = _table_orbits(data)
    if command == "compare" and not orbits:
        raise ValueError(
            "no two columns look alike, and none is symmetric about zero: orbitgp learn trains a model without invariance; "
            'or say what to compare, as in --orbit none --orbit "swap(left, right)" --orbit noise.'
        )
    if command == "learn" and orbits:
        data.notes.append(f"orbitgp compare tells whether these columns have an invariance: {', '.join(orbits)}.")
    return ["none", *orbits] if command == "compare" else ["none"]


def _table_orbits(data: Data) -> list[str]:
    """Exchanges of columns that look alike, and changes of sign of those that are symmetric about zero: the likeliest."""
    import numpy as np
    from scipy.stats import ks_2samp

    known = [name if name.isidentifier() else repr(name) for name in data.options.features]
    names = known or [str(i) for i in range(data.x.shape[1])]  # arrays have numbers for names
    columns = {name: x for name, x in zip(names, data.x.T, strict=True) if len(np.unique(x)) > 2}
    columns = dict(list(columns.items())[:_MOST_COLUMNS])
    pairs = {f"swap({a}, {b})": (columns[a], columns[b]) for a, b in combinations(columns, 2)}
    pairs |= {f"sign({name})": (x, -x) for name, x in columns.items()}
    apart = {orbit: ks_2samp(*pair).statistic for orbit, pair in pairs.items()}
    close = max(_CLOSE, 1.36 * sqrt(2 / len(data.x)))  # 5 % of equal distributions are further apart
    return sorted((orbit for orbit in apart if apart[orbit] <= close), key=apart.__getitem__)[:_MOST_ORBITS]
