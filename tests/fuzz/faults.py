"""Faults: the file system, the memory or the process fails at one point of ``learn``, ``compare`` or ``predict``.

A first run counts the calls that could fail. Then one run for each of them fails there. Whatever happens, the command
must end with one sentence or go on, every file must be whole, an earlier model must stay, and a run that goes on must
end with the same model, bit for bit, as one that was never disturbed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

import orbitgp.saving.container
from orbitgp.cli import main
from orbitgp.cli.begin import INTERRUPTED
from orbitgp.saving.container import read
from tests.fuzz.invariants import is_sentence

TINY = ["--num-inducing", "4", "--num-samples", "4", "--max-steps", "6", "--batch-size", "8", "--quiet", "--seed", "0"]
COMMANDS = {
    "learn": ["learn", "data.npz", "--orbit", "flip", "--no-baseline", "--out", "run", *TINY],
    "compare": ["compare", "data.npz", "-o", "none", "-o", "flip", "--refine-seconds", "0", "--jobs", "1"]
    + ["--out", "run", *TINY],
    "predict": ["predict", "model", "data.npz", "--out", "predictions.csv"],
}
SAID = Path("said.txt")  # the last words of a process that learns
CRASH = 99  # an exit code that no command has
ENDS = {".html": "</html>"}
EVERY = 8  # only every eighth of the many allocations is tried


class Outcome(NamedTuple):
    """The exit code of a command, and its last line on stderr."""

    code: int
    said: str


@cache
def prepared() -> Path:
    """A folder with data, a finished run to predict with, and an undisturbed run of every command."""
    folder = Path(tempfile.mkdtemp(prefix="orbitgp-faults-"))
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", x=rng.random((16, 4, 4)), y=np.arange(16) % 2)
    with _within(folder):
        for command, words in COMMANDS.items():
            if command == "predict":
                shutil.copytree("run-of-learn", "model")
            if (outcome := apart(partial(run, words))).code:
                raise RuntimeError(f"{command} fails undisturbed: {outcome.said}")
            if command != "predict":
                Path("run").rename(f"run-of-{command}")
    return folder


def run(words: list[str]) -> Outcome:
    """Run a command in this process, from its entry point to its exit."""
    out, err = io.StringIO(), io.StringIO()
    argv = patch.object(sys, "argv", ["orbitgp", *words])
    with argv, redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except Exception as error:
            return Outcome(CRASH, f"{type(error).__name__}: {error}")
    lines = err.getvalue().strip().splitlines()
    return Outcome(code, lines[-1] if lines else "")


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def workplace() -> Iterator[Path]:
    """A copy of the prepared folder, without the runs that a command will make."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        shutil.copytree(prepared(), folder, ignore=shutil.ignore_patterns("run*", "predictions.csv"))
        with _within(folder):
            yield folder


class Layer:
    """Counts calls that could fail, and lets the one of this number fail."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.calls, self.failed = fails_at, 0, ""

    def _due(self, name: str) -> bool:
        self.calls += 1
        if self.calls - 1 == self.fails_at:
            self.failed = name
            return True
        return False

    def _failing(self, name: str, original: Callable[..., Any], every: int = 1) -> Callable[..., Any]:
        seen = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen % every == 0 and self._due(name):
                if name.startswith("write"):  # a full disk takes a part
                    original(args[0], args[1][: len(args[1]) // 2], *args[2:], **kwargs)
                raise (
                    MemoryError("no memory left")
                    if every > 1
                    else OSError(errno.ENOSPC, "No space left on device", str(args[0]))
                )
            return original(*args, **kwargs)

        return call

    @contextmanager
    def __call__(self) -> Iterator[None]:
        places: list[tuple[Any, str, int]] = [
            *((os, name, 1) for name in ("replace", "link", "fsync")),
            *((pathlib.Path, name, 1) for name in ("write_text", "write_bytes", "read_text", "mkdir")),
            (orbitgp.saving.container, "safe_open", 1),
            (np, "load", 1),
            (torch.linalg, "cholesky_ex", EVERY),
        ]
        patches = [
            patch.object(owner, name, self._failing(name, getattr(owner, name), each)) for owner, name, each in places
        ]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


@cache
def number_of_faults(command: str) -> int:
    """How many calls of a command could fail."""
    layer = Layer()
    with workplace(), layer():
        run(COMMANDS[command])
    return layer.calls


def bad_fault(seed: int) -> list[str]:
    """What is wrong after the fault of this seed: all of learn in turn, then all of compare, then all of predict."""
    for command in COMMANDS:
        if seed < number_of_faults(command):
            return fault(command, seed)
        seed -= number_of_faults(command)
    return []


def fault(command: str, number: int) -> list[str]:
    """What is wrong after the call of this number failed."""
    layer = Layer(number)
    with workplace() as folder:
        before = (folder / "model/model.safetensors").read_bytes()
        with layer():
            outcome = run(COMMANDS[command])
        where = f"{command}, call {number} ({layer.failed})"
        wrong = _judged(outcome) + broken_files(folder)
        if (folder / "model/model.safetensors").read_bytes() != before:
            wrong.append("an earlier model is another")
        if command == "learn":
            wrong += _resumed(folder)
    return [f"{where}: {what}" for what in wrong]


def _judged(outcome: Outcome) -> list[str]:
    if outcome.code == 0:
        return []  # a checkpoint that could not be written, say: the run goes on
    if outcome.code != 1 or not outcome.said.startswith("error: "):
        return [f"exit {outcome.code}: {outcome.said!r}"]
    said = outcome.said.removeprefix("error: ")
    return [] if is_sentence(said) and "bug in orbitgp" not in said else [f"not one sentence: {said}"]


def broken_files(folder: Path) -> list[str]:
    """Files that are not whole, or that were left beside."""
    wrong = []
    for path in (p for p in folder.rglob("*") if p.is_file()):
        try:
            if path.name.startswith("."):
                wrong.append(f"{path.name} was left behind")
            elif path.suffix == ".safetensors":
                read(path)
            elif path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix in ENDS and not path.read_text().rstrip().endswith(ENDS[path.suffix]):
                wrong.append(f"{path.name} is cut short")
        except ValueError as error:
            wrong.append(f"{path.name} is broken: {error}")
    return wrong


def _resumed(folder: Path) -> list[str]:
    """A run that was disturbed goes on, or starts over, and ends with the model of an undisturbed one."""
    result = folder / "run/result.json"
    if not (folder / "run/config.json").is_file():
        if (folder / "run").is_dir() and any((folder / "run").iterdir()):
            return ["a folder without a configuration holds files"]
        shutil.rmtree(folder / "run", ignore_errors=True)
        again = run(COMMANDS["learn"])
    elif not result.is_file() or json.loads(result.read_text())["interrupted"]:
        again = run(["learn", "data.npz", "--resume", "run", "--quiet"])
    else:
        again = Outcome(0, "")
    if again.code:
        return [f"going on fails: {again.said}"]
    return same_model(folder / "run/model.safetensors", prepared() / "run-of-learn/model.safetensors")


def same_model(path: Path, like: Path) -> list[str]:
    """Whether two models have the same numbers, bit for bit."""
    if not path.is_file():
        return ["there is no model"]
    one, other = read(path).tensors, read(like).tensors
    differ = [name for name in other if name not in one or not torch.equal(one[name], other[name])]
    return [f"the model differs in {', '.join(differ[:3])}"] if differ else []


def bad_kill(seed: int) -> list[str]:
    """What is wrong after ``learn`` was killed, or interrupted twice, at a random moment, and went on."""
    rng = np.random.default_rng(seed)
    interrupt = seed % 4 == 3
    with workplace() as folder:
        child = _learning()
        time.sleep(rng.uniform(0, seconds_of_learn()))
        if interrupt:
            os.kill(child, signal.SIGINT)
            time.sleep(rng.uniform(0, 0.1))
        os.kill(child, signal.SIGINT if interrupt else signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if interrupt and os.waitstatus_to_exitcode(status) not in (0, INTERRUPTED):
            said = SAID.read_text() if SAID.is_file() else "nothing"
            return [f"exit {os.waitstatus_to_exitcode(status)} after two interrupts, and it said {said!r}"]
        for left in folder.rglob(
            ".*"
        ):  # what a killed process leaves beside is hidden, and nobody takes it for a result
            left.unlink()
        return broken_files(folder) + apart(partial(_resumed, folder))


def apart(work: Callable[[], Any]) -> Any:
    """What this returns in a process of its own: one that has computed gradients must not fork."""
    ours, theirs = Pipe(duplex=False)
    if child := os.fork():
        theirs.close()
        found = ours.recv()
        os.waitpid(child, 0)
        return found
    try:
        theirs.send(work())
    finally:
        os._exit(0)


def _learning() -> int:
    """A process that learns, by its number. It never returns from here, or it would tidy up what belongs to this
    one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return child
    code = INTERRUPTED
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code, said = run(COMMANDS["learn"])
        SAID.write_text(said)
    finally:
        os._exit(code)


@cache
def seconds_of_learn() -> float:
    start = time.perf_counter()
    with workplace():
        apart(partial(run, COMMANDS["learn"]))
    return time.perf_counter() - start


if __name__ == "__main__":
    for name in sys.argv[1:] or COMMANDS:
        print(name, number_of_faults(name))
