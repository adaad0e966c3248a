"""``orbitgp show``: what a run has learned."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from orbitgp.cli.arguments import Json
from orbitgp.cli.results import print_line, print_result
from orbitgp.cli.run import Result, Run, read_json


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    open_: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
    json_: Json = False,
) -> None:
    """Show what a run has learned, or how far an unfinished one has come.

    Example:

        orbitgp show runs/digits-rotation --open
    """
    run = Run.open(folder)
    if not run.result.is_file():
        _unfinished(run, json_)
        return
    result = read_json(run.result, Result)
    if "comparison" in result and not json_:
        typer.echo(f"{result['comparison'].get('verdict')}\n")
    print_result(result, run, json_)
    if not json_:
        print_line("run it again", result["again"])
        if result["interrupted"]:
            print_line("go on", run.resume_command())
    if open_ and not webbrowser.open(run.report.resolve().as_uri()):
        raise RuntimeError(f"no browser was found: open {run.report} by hand.")


def _unfinished(run: Run, json_: bool) -> None:
    from orbitgp.training.checkpoint import read_checkpoint

    steps = read_checkpoint(run.checkpoint).steps if run.checkpoint.is_file() else 0
    total = run.config["settings"]["max_steps"]
    if json_:
        typer.echo(json.dumps({"finished": False, "steps": steps, "max_steps": total}))
        return
    done = f"{steps}{'' if total is None else f' of {total}'} steps"
    if run.config["command"] == "compare":
        count = len(list(run.models.glob("*")))
        done = f"{count} model{'' if count == 1 else 's'}"
    typer.echo(f"{', '.join(run.config['orbits'])} on {run.config['name']}: {done} done.\nGo on with {run.resume_command()}")
