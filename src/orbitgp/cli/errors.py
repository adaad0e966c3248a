"""Errors as sentences: what is wrong on stderr, an exit code for scripts, and no traceback.

0 is success, 1 an error, 2 a command line that cannot be (typer's own), 130 Ctrl-C. ``ORBITGP_TRACEBACK=1`` shows where an
error came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import typer

Command = TypeVar("Command", bound=Callable[..., Any])

ERROR, INTERRUPTED = 1, 130
_EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, ImportError, MemoryError, RuntimeError)


def guarded(command: Command) -> Command:
    """A command whose errors are sentences."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            typer.echo("stopped.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has gone: nothing more to say, nor to flush at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ERROR) from None
        except Exception as error:
            if os.environ.get("ORBITGP_TRACEBACK"):
                raise
            typer.echo(f"error: {_sentence(error)}", err=True)
            raise typer.Exit(ERROR) from None

    return run  # type: ignore[return-value]


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0].strip() if lines else type(error).__name__
    if not isinstance(error, _EXPECTED):
        return f"something is wrong inside orbitgp ({type(error).__name__}: {text}); ORBITGP_TRACEBACK=1 shows where."
    return text if text.endswith((".", "?", "!")) else f"{text}."
