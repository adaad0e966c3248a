"""The application: its commands, what ``orbitgp --help`` says, and errors as sentences.

What is wrong is said on stderr, without a traceback, and scripts get an exit code. 0: success. 1: error. 2: usage
error. 130: Ctrl-C. ``ORBITGP_TRACEBACK=1`` shows where an error came from.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
import webbrowser
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

import orbitgp
from orbitgp.cli.advise import advise
from orbitgp.cli.arguments import Json, expand_options
from orbitgp.cli.begin import INTERRUPTED
from orbitgp.cli.compare import compare
from orbitgp.cli.doctor import doctor
from orbitgp.cli.learn import learn
from orbitgp.cli.predict import load_model, predict
from orbitgp.cli.processes import count, rank
from orbitgp.cli.results import print_line, print_result
from orbitgp.cli.run import Run, read_json

HELP = """Learn from data what a function should not care about.

Give it inputs, targets and a family of transformations. It trains a Gaussian process whose predictions are insensitive
to as much of them as the data support, and says how much that is, in degrees and pixels, with the evidence for it.

Try this; without DATA, commands use a small set of digits:

    orbitgp compare                   which invariance do the data support?
    orbitgp learn --orbit rotation    learn one; keep the model and a report
    orbitgp predict RUN INPUT         predict for new inputs
"""

_EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError, RuntimeError)
_PATIENCE = 3.0  # seconds

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    run.json = json_
    if not run.result.is_file():
        _unfinished(run, json_)
        return
    result = read_json(run.result)
    if "comparison" in result and not json_:
        typer.echo(f"{result['comparison'].get('verdict')}\n")
    print_result(result, run)
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
    if run.config["command"] != "learn":
        count = len(list(run.models.glob("*")))
        done = f"{count} model{'' if count == 1 else 's'}"
    typer.echo(f"{', '.join(run.config['orbits'])} on {run.config['name']}: {done} done.")
    typer.echo(f"Go on with {run.resume_command()}")


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    to: Annotated[str, typer.Option(metavar="TOOL", help="torchvision, kornia, …; others list all.")] = "torchvision",
) -> None:
    """Print what a run has learned of images as code or configuration of another tool.

    The ranges say how far an input may go and keep its target. A network trained with them sees all of it.

    Example:

        orbitgp export runs/digits-affine --to kornia > augmentation.py
    """
    from orbitgp.report.augmentation import augmentation

    run = Run.open(folder)
    if not run.model.is_file():
        raise FileNotFoundError(f"{folder} has no model yet: go on with {run.resume_command()}.")
    model = load_model(run.model)
    typer.echo(augmentation(model.orbit_, model.input_shape_, to), nl=False)


def print_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command print its errors as sentences and exit with a code; only ``learn`` runs in several processes."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        if count() > 1 and (name := command.__name__) != "learn":
            typer.echo(f"error: torchrun is for orbitgp learn: orbitgp {name} runs in one process.", err=True)
            raise typer.Exit(1)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="the border of these images|the pixels of X")  # in the notes
                warnings.showwarning = _print_warning
                command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            typer.echo("stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of our output has gone. Python would flush the rest at exit, and fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except Exception as error:
            if os.environ.get("ORBITGP_TRACEBACK"):
                raise
            if rank() > 0:
                # Where all processes fail, the first says so, and torchrun ends the others meanwhile.
                time.sleep(_PATIENCE)
                print(f"error in process {rank()}: {_sentence(error)}", file=sys.__stderr__, flush=True)
            else:
                typer.echo(f"error: {_sentence(error)}", err=True)
            raise typer.Exit(1) from None

    return run


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence, without the line of source code that gave it."""
    typer.echo(f"warning: {_printable(str(message))}", err=True)


def _printable(text: str) -> str:
    """The text without characters that would steer a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "\ufffd", text)


def _sentence(error: Exception) -> str:
    """What is wrong."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return _printable(f"{error.filename}: {error.strerror}.")
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if not isinstance(error, _EXPECTED):
        text = f"this is a bug in orbitgp ({type(error).__name__}: {text}); ORBITGP_TRACEBACK=1 shows where."
    return _printable(text if text.endswith((".", "?", "!")) else f"{text}.")


for command in (learn, compare, advise, predict, show, export, doctor):
    app.command()(expand_options(print_errors(command)))


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"orbitgp {orbitgp.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    pass  # its options act by themselves
