"""Errors as sentences: what is wrong on stderr, an exit code for scripts, and no traceback.

Exit codes: 0: success. 1: error. 2: usage error. 130: Ctrl-C. ``ORBITGP_TRACEBACK=1`` shows where an error came from.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from orbitgp.cli.processes import count, rank

ERROR, INTERRUPTED = 1, 130
_EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError, RuntimeError)
_PATIENCE = 3.0  # seconds


def print_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command print its errors as sentences and exit with a code; only ``learn`` runs in several processes."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        if count() > 1 and command.__name__ != "learn":
            typer.echo(f"error: torchrun is for orbitgp learn: orbitgp {command.__name__} runs in one process.", err=True)
            raise typer.Exit(ERROR)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="the border of these images|the pixels of X")  # the notes say it
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
            raise typer.Exit(ERROR) from None
        except Exception as error:
            if os.environ.get("ORBITGP_TRACEBACK"):
                raise
            if rank() > 0:
                # Where all processes fail, the first says so, and torchrun ends the others meanwhile.
                time.sleep(_PATIENCE)
                print(f"error in process {rank()}: {_sentence(error)}", file=sys.__stderr__, flush=True)
            else:
                typer.echo(f"error: {_sentence(error)}", err=True)
            raise typer.Exit(ERROR) from None

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
