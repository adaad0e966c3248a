"""``orbitgp show``: what a run has learned."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from orbitgp.cli import arguments as o
from orbitgp.cli.errors import guarded
from orbitgp.cli.results import say
from orbitgp.cli.run_folder import Folder


@guarded
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    json_: o.Json = False,
) -> None:
    """What a run has learned, in words and numbers; of an unfinished one, how far it has come.

    Example:

        orbitgp show runs/digits-rotation --open
    """
    folder = Folder.existing(run)
    config = folder.read(folder.config)
    if not folder.result.is_file():
        _unfinished(folder, config, json_)
        return
    result = folder.read(folder.result)
    if json_:
        typer.echo(json.dumps(result, indent=1))
    else:
        if "comparison" in result:
            typer.echo(result["comparison"]["verdict"] + "\n")
        say(result, folder)
        typer.echo(f"  {'run it again':<17}{result['again']}")
    if open_ and not webbrowser.open(folder.report.resolve().as_uri()):
        raise RuntimeError(f"there is no browser to open {folder.report} with: open it by hand.")


def _unfinished(folder: Folder, config: dict[str, Any], json_: bool) -> None:
    from orbitgp.training.checkpoint import read_checkpoint

    steps = read_checkpoint(folder.checkpoint).steps if folder.checkpoint.is_file() else 0
    total = config["settings"]["max_steps"]
    if json_:
        typer.echo(json.dumps({"finished": False, "steps": steps, "max_steps": total}))
        return
    typer.echo(f"{config['orbit']} on {config['name']}: {steps} of {total} steps done.")
    typer.echo(f"Go on with orbitgp learn --resume {folder.path}")
