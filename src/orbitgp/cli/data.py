"""``orbitgp data``: fetch a named data set, verify it, and say where it is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from orbitgp.cli.arguments import DATA_NAMES, DataDir, Json, complete_data
from orbitgp.cli.errors import print_errors


@print_errors
def data(
    name: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(DATA_NAMES)}; without a name, all are listed.", autocompletion=complete_data),
    ] = None,
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Fetch a data set, verify its checksums, and cache it.

    Files go to --data-dir, else to the folder ORBITGP_DATA, else to the user's cache. Files that exist are not fetched again.

    Example:

        orbitgp data mnist
    """
    if name is None:
        table = "\n".join(f"{known:<15}{says}" for known, says in DATA_NAMES.items())
        typer.echo(json.dumps(DATA_NAMES) if json_ else table)
        return
    if name not in DATA_NAMES:
        raise ValueError(f"there is no data set {name!r}: there are {', '.join(DATA_NAMES)}.")
    from orbitgp.datasets.base import data_folder
    from orbitgp.datasets.files import ReadOptions, load

    loaded = load(name, ReadOptions(root=data_dir))
    assert loaded.x_test is not None
    where = "embedded" if name == "digits" else str(data_folder(data_dir))
    shape = "x".join(str(n) for n in loaded.x_train.shape[1:])
    if json_:
        sizes = {"train": len(loaded.x_train), "test": len(loaded.x_test)}
        typer.echo(json.dumps({"name": loaded.name, "source": loaded.source, "folder": where, **sizes, "shape": shape}))
        return
    typer.echo(f"{loaded.name}: {len(loaded.x_train):,} to train on, {len(loaded.x_test):,} to test, images of {shape}")
    typer.echo(f"{loaded.source}; {where}")
