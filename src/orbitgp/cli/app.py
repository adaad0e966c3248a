"""The application: its commands, and what ``orbitgp --help`` says."""

from __future__ import annotations

from typing import Annotated

import typer

import orbitgp
from orbitgp.cli.arguments import expand_options
from orbitgp.cli.compare import compare
from orbitgp.cli.errors import print_errors
from orbitgp.cli.learn import learn
from orbitgp.cli.predict import predict
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


for command in (learn, compare, predict, show):
    app.command()(expand_options(print_errors(command)))


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"orbitgp {orbitgp.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass  # its options act by themselves
