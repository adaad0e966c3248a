"""``orbitgp show``: what a run has learned."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from orbitgp.cli.arguments import Json
from orbitgp.cli.results import print_line, print_result
from orbitgp.cli.run_folder import Result, RunFolder


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    json_: Json = False,
) -> None:
    """Show what a run has learned, or how far an unfinished one has come.

    Example:

        orbitgp show runs/digits-rotation --open
    """
    folder = RunFolder.open(run)
    config = folder.read_config()
    if not folder.result.is_file():
        _unfinished(folder, config, json_)
        return
    result = folder.read_json(folder.result, Result)
    if json_:
        typer.echo(json.dumps(result, indent=1))
    else:
        if "comparison" in result:
            typer.echo(f"{result['comparison'].get('verdict')}\n")
        print_result(result, folder, config)
        print_line("run it again", result["again"])
    if open_ and not webbrowser.open(folder.report.resolve().as_uri()):
        raise RuntimeError(f"no browser was found: open {folder.report} by hand.")


def _unfinished(folder: RunFolder, config: dict[str, Any], json_: bool) -> None:
    steps, total = folder.steps_done(), config["settings"]["max_steps"]
    if json_:
        typer.echo(json.dumps({"finished": False, "steps": steps, "max_steps": total}))
        return
    done = f"{steps}{'' if total is None else f' of {total}'} steps"
    if config["command"] == "compare":
        count = len(list(folder.models.glob("*")))
        done = f"{count} model{'' if count == 1 else 's'}"
    typer.echo(f"{', '.join(config['orbits'])} on {config['name']}: {done} done.")
    typer.echo(f"Go on with {folder.resume_command()}")
