"""The command line: ``orbitgp learn``, ``compare``, ``advise``, ``predict``, ``show``, ``export``, ``doctor``."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys


def main() -> None:
    """The entry point. typer is an extra; without it, one sentence says how to get it."""
    atexit.register(gc.freeze)  # a last collection, among a million objects of libraries, takes a second
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads make a busy machine twice as slow
    try:
        import typer  # noqa: F401
    except ImportError:
        print("error: the command line needs the package typer: pip install 'orbitgp[cli]'.", file=sys.stderr)
        raise SystemExit(1) from None
    try:
        from orbitgp.cli.app import app
        from orbitgp.cli.processes import silence_others

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a code page of Windows may not have every sign that is printed
                stream.reconfigure(errors="replace")
        silence_others()
        app(prog_name="orbitgp")
    except KeyboardInterrupt:  # before a command has begun, or after it has ended
        print("stopped.", file=sys.stderr)
        raise SystemExit(130) from None
