"""Commands, called in this process or in one of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from subprocess import Popen
from typing import Any

import pytest
from typer.testing import Result

typer_testing = pytest.importorskip("typer.testing")

from orbitgp.cli.app import app  # noqa: E402

QUICK = ["-m", "12", "--num-samples", "4", "--max-steps", "12", "--batch-size", "40"]


def call(*arguments: object) -> Result:
    return typer_testing.CliRunner().invoke(app, [str(a) for a in arguments])


def run(*arguments: str, **options: Any) -> Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "orbitgp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def press_ctrl_c(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, number: int) -> list[float]:
    """Ctrl-C at this call of a method, once. The list will hold the processor time of that moment."""
    calls, original, pressed = iter(range(1, 10**6)), getattr(kind, method), []

    def interrupted(*args: Any) -> Any:
        if next(calls) == number:
            pressed.append(time.process_time())
            signal.raise_signal(signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(kind, method, interrupted)
    return pressed
