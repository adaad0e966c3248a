"""The application: its commands, and what ``orbitgp --help`` says."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import orbitgp
from orbitgp.cli.arguments import DATA_NAMES, DataDir, Json, complete_data, expand_options
from orbitgp.cli.compare import compare
from orbitgp.cli.errors import ERROR, print_errors
from orbitgp.cli.learn import learn
from orbitgp.cli.predict import predict
from orbitgp.cli.processes import count
from orbitgp.cli.show import show

HELP = """Learn from data what a function should not care about.

Give it inputs, targets and a family of transformations. It trains a Gaussian process whose predictions are insensitive to as
much of them as the data support, and says how much that is, in degrees and pixels, with the evidence for it.

Try this; without DATA, commands use a small set of digits:

    orbitgp compare                   which invariance do the data support?
    orbitgp learn --orbit rotation    learn one; keep the model and a report
    orbitgp predict RUN INPUT         predict for new inputs
"""

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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

    found = load(name, ReadOptions(root=data_dir))
    assert found.x_test is not None
    where = "embedded" if name == "digits" else str(data_folder(data_dir))
    shape, train, test = "x".join(map(str, found.input_shape)), len(found.x_train), len(found.x_test)
    if json_:
        sizes = {"train": train, "test": test, "shape": shape}
        typer.echo(json.dumps({"name": found.name, "source": found.source, "folder": where, **sizes}))
        return
    typer.echo(f"{found.name}: {train:,} to train on, {test:,} to test, images of {shape}\n{found.source}; {where}")


for command in (learn, compare, predict, show, data):
    app.command()(expand_options(print_errors(command)))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orbitgp {orbitgp.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    if count() > 1 and context.invoked_subcommand != "learn":
        command = context.invoked_subcommand
        typer.echo(f"error: torchrun is for orbitgp learn: orbitgp {command} runs in one process.", err=True)
        raise typer.Exit(ERROR)
