"""Mutants: do the tests notice a small mistake? Each mutant changes one operator, number or argument of a module in
memory.

    python -m tests.mutants                       the named ones, and 80 of inference and comparison, drawn with seed 0
    python -m tests.mutants --seed 1 --count 40   others
    python -m tests.mutants --jobs 14 --out FILE  fourteen at a time; the result as JSON, too

All of it is one session of pytest, and every mutant has a fork of its process. First the tests run once: which
functions does each of them call, and how long does it take? Then a mutant meets the tests that call its function, those
of its module first, until one fails. Worker processes do not see mutants. What no test can notice stands in
equivalent_mutants.txt, with the reason. The exit status is 1 where fewer than nine in ten are killed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "orbitgp"
ROOMS = ("inference", "comparison")
TESTS = ["tests/inference", "tests/comparison", "tests/estimators/test_base.py", "tests/estimators/test_subset.py"]
TESTS += ["tests/estimators/test_stored.py", "tests/estimators/test_joint_predictions.py"]
TESTS += [
    "tests/training/test_plausible.py",
    "tests/training/test_plausible_profiles.py",
    "tests/training/test_ladder.py",
]
NAMED = [  # mistakes that tests once did not notice: module, text, text of the mutant
    ("inference/exact.py", "shared_samples(x, self.num_samples, self.seed)", "shared_samples(x, self.num_samples, 0)"),
    ("inference/exact.py", "seed=self.seed + number", "seed=self.seed"),  # fresh draws are those that were learned from
    ("training/ladder.py", "DRAWS_TOLERANCE = 1.0", "DRAWS_TOLERANCE = 50.0"),
    ("training/plausible.py", "_ROOT = float(", "_ROOT = 1.6 * float("),  # plausible ranges are too wide
    ("comparison/refine.py", "high + errors", "high"),  # the upper end of sparse models without its error of draws
    ("inference/evidence.py", "self.upper + 2 * self.stderr", "self.upper"),
]
ELSEWHERE = ("processes.py",)  # modules that only other processes call
EQUIVALENT = HERE / "equivalent_mutants.txt"  # module | line | line of the mutant | reason
TEST_SECONDS = 60.0  # of tests that a mutant meets at most
FORK_SECONDS = 240  # that a fork may take: a mutant may never end
FEW_TESTS = 10  # of one file, for a fork that records what they call
NEEDED = 0.9  # share of the mutants that must be killed

PAIRS: list[tuple[Any, Any]] = [
    (ast.Lt, ast.GtE),
    (ast.Gt, ast.LtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
]
PAIRS += [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)]
PAIRS += [("min", "max"), ("argmin", "argmax"), ("amin", "amax"), ("clamp_min", "clamp_max")]
OPPOSITE: dict[Any, Any] = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
WITHOUT_EFFECT = ("device", "strict")  # arguments that change nothing on a processor, or where lengths are equal


class Mutant(NamedTuple):
    """A module with one part replaced. ``function`` is the line where the outermost function around it begins, or 0."""

    module: str
    line: int
    function: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def replacements(node: Any) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=others):
            yield ast.Compare(left, [OPPOSITE[type(op)]()], others)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPPOSITE:
            yield ast.BinOp(left, OPPOSITE[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(OPPOSITE[type(op)](), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield ast.Constant(2 * value or 1)
        case ast.Return(value=ast.AST() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(None)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as func, args=args, keywords=words) if (
            name in OPPOSITE
        ):
            other = OPPOSITE[name]
            yield ast.Call(
                ast.Name(other) if isinstance(func, ast.Name) else ast.Attribute(func.value, other), args, words
            )
    for word in node.keywords if isinstance(node, ast.Call) else []:
        if word.arg not in WITHOUT_EFFECT:
            yield ast.Call(node.func, node.args, [other for other in node.keywords if other is not word])


def nodes(parent: ast.AST, function: int = 0) -> Iterator[tuple[Any, int]]:
    """What computes something, with the first line of the function around it. Types, and texts with values, do not."""
    for name, value in ast.iter_fields(parent):
        for node in value if isinstance(value, list) else [value]:
            if name in ("annotation", "returns", "decorator_list") or not isinstance(node, ast.AST):
                continue
            inside = function
            if isinstance(node, ast.FunctionDef | ast.Lambda) and not function:
                inside = min(part.lineno for part in (node, *getattr(node, "decorator_list", [])))
            if not isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
                yield node, inside
                yield from nodes(node, inside)


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a module."""
    found, lines = [], source.encode().splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    for node, function in nodes(ast.parse(source)):
        for new in replacements(node):
            text = (
                ast.unparse(new) if isinstance(node, ast.Return | ast.Constant | ast.Call) else f"({ast.unparse(new)})"
            )
            first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            changed = (b"".join(lines)[:first] + text.encode() + b"".join(lines)[last:]).decode()
            before, after = (code.splitlines()[node.lineno - 1].strip() for code in (source, changed))
            found.append(Mutant(module, node.lineno, function, before, after, changed))
    return found


def known(module: str, before: str, after: str) -> tuple[str, str, str]:
    """What a mutant is found by in the list of equivalent ones: comments do not count."""
    return module, before.split("  # ")[0], after.split("  # ")[0]


def equivalent() -> set[tuple[str, str, str]]:
    """Those of the list, without the reasons. ``*`` stands for every mutant of a line."""
    module, before, after, _ = zip(
        *(line.split(" | ") for line in EQUIVALENT.read_text().splitlines()[1:]), strict=True
    )
    return set(map(known, module, before, after))


def is_equivalent(mutant: Mutant, listed: set[tuple[str, str, str]]) -> bool:
    return not listed.isdisjoint(known(mutant.module, mutant.before, after) for after in (mutant.after, "*"))


def possible() -> list[Mutant]:
    """All mutants that may be drawn."""
    modules = sorted(path for room in ROOMS for path in (SOURCE / room).rglob("*.py") if path.name not in ELSEWHERE)
    return [mutant for path in modules for mutant in mutants_of(str(path.relative_to(SOURCE)), path.read_text())]


def named(module: str, before: str, after: str) -> Mutant:
    """A mutant by the text that it replaces, which must stand in the module once."""
    source = (SOURCE / module).read_text()
    if source.count(before) != 1:
        raise ValueError(f"{before!r} stands {source.count(before)} times in {module}, not once: change NAMED.")
    line = source[: source.index(before)].count("\n") + 1
    function = max(inside for node, inside in nodes(ast.parse(source)) if getattr(node, "lineno", 0) == line)
    return Mutant(module, line, function, before, after, source.replace(before, after))


def functions(namespace: dict[str, Any], module: str) -> Iterator[tuple[str, Any]]:
    """The functions of a module or class by their names, without their decorators."""
    for name, value in list(namespace.items()):
        if isinstance(value, type) and value.__module__ == module:
            yield from ((f"{name}.{inner}", function) for inner, function in functions(dict(vars(value)), module))
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        value = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(value) and value.__module__ == module:
            yield name, value


def apply(mutant: Mutant) -> None:
    """Put the functions and constants of a mutant in place of those of its module."""
    module = import_module(f"orbitgp.{mutant.module.removesuffix('.py').replace('/', '.')}")
    fresh = {"__name__": module.__name__, "__package__": module.__package__, "__file__": module.__file__}
    exec(compile(mutant.source, str(module.__file__), "exec"), fresh)
    changed = dict(functions(fresh, module.__name__))
    for name, function in functions(vars(module), module.__name__):
        function.__code__, function.__defaults__ = changed[name].__code__, changed[name].__defaults__
        function.__kwdefaults__ = changed[name].__kwdefaults__
    others = [vars(other) for name, other in list(sys.modules.items()) if name.startswith("orbitgp.")]
    plain = [(n, v) for n, v in vars(module).items() if isinstance(v, int | float | tuple)]
    for name, before in [(n, v) for n, v in plain if fresh[n] != v]:  # type: ignore[comparison-overlap]
        for other in others:
            other |= {name: fresh[name]} if other.get(name) == before else {}


def in_forks(tasks: Sequence[Callable[[], str]], jobs: int) -> Iterator[tuple[int, str | None, float]]:
    """What the tasks return, as they end: number, text, and seconds. A fork that was ended early returns None."""
    waiting, running = list(enumerate(tasks)), dict[int, tuple[int, float]]()
    folder = Path(tempfile.mkdtemp())
    while waiting or running:
        while waiting and len(running) < jobs:
            number, task = waiting.pop(0)
            if not (child := os.fork()):
                os.setsid()  # so that what it starts can be ended with it
                for stream in (1, 2):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
                signal.alarm(FORK_SECONDS)
                resource.setrlimit(resource.RLIMIT_CPU, (FORK_SECONDS,) * 2)
                os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(dir=folder)
                try:
                    (folder / str(number)).write_text(task())
                    os._exit(0)
                except Exception:
                    (folder / "failed").write_text(traceback.format_exc())
                    os._exit(1)
            running[child] = number, time.perf_counter()
        child = os.wait()[0]
        if (folder / "failed").exists():
            raise RuntimeError((folder / "failed").read_text())
        number, start = running.pop(child)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        found = folder / str(number)
        yield number, found.read_text() if found.exists() else None, time.perf_counter() - start
    shutil.rmtree(folder, ignore_errors=True)


class Session:
    """A plugin of pytest that lets mutants meet the tests."""

    def __init__(self, mutants: list[Mutant], path: Path | None, jobs: int, out: Path | None) -> None:
        self.mutants, self.path, self.jobs = mutants, path or Path(tempfile.mkdtemp()) / "calls.json", jobs
        self.out = out
        self.recording, self.failed = False, list[str]()
        self.calls, self.seconds = defaultdict[str, set[str]](set), dict[str, float]()
        self.outcomes = list[dict[str, Any]]()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self.recorded(item.nodeid.split("::")[0])  # a fixture serves the tests of its file

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        start = time.perf_counter()  # of worker processes, too
        yield from self.recorded(item.nodeid)
        self.seconds[item.nodeid] = time.perf_counter() - start

    def recorded(self, place: str) -> Iterator[None]:
        def profile(frame: Any, event: str, _: object) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
                module = Path(frame.f_code.co_filename).relative_to(SOURCE)
                self.calls[place].add(f"{module}:{frame.f_code.co_firstlineno}:")

        for setprofile in (sys.setprofile, threading.setprofile):  # of new threads, too
            setprofile(profile if self.recording else None)
        yield
        for setprofile in (sys.setprofile, threading.setprofile):
            setprofile(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed += [report.nodeid] if report.failed else []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self.path.exists():
            self.path.write_text(json.dumps(self.record(session.items)))
        recorded, items = json.loads(self.path.read_text()), {item.nodeid: item for item in session.items}
        tasks = [partial(self.first_failure, self.met(mutant, recorded, items), mutant) for mutant in self.mutants]
        for number, test, seconds in in_forks(tasks, self.jobs):
            mutant, by = self.mutants[number], "no test, but its process ended early" if test is None else test
            said = {"module": mutant.module, "line": mutant.line, "before": mutant.before, "after": mutant.after}
            self.outcomes.append({**said, "killed_by": by, "seconds": round(seconds, 1)})
            if self.out is not None:  # each time: a run may be stopped
                self.out.write_text(
                    json.dumps({"to_try": len(tasks), "mutants": self.outcomes}, indent=1) + "\n", encoding="utf-8"
                )
            place = f"{len(self.outcomes):3} of {len(tasks)}"
            print(f"{place} {f'killed   {mutant}   by {by}' if by else f'SURVIVED {mutant}'}", flush=True)
        return True

    def record(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        """What each test calls, and how long it takes. Tests that fail without any mutant are left out, and said."""
        files = defaultdict[Path, list[pytest.Item]](list)
        for item in items:
            files[item.path].append(item)
        pieces = [some[i : i + FEW_TESTS] for some in files.values() for i in range(0, len(some), FEW_TESTS)]
        pieces.sort(key=lambda piece: -sum(item.get_closest_marker("slow") is not None for item in piece))
        calls, seconds, failed = defaultdict[str, set[str]](set), dict[str, float](), set[str]()
        for number, text, took in in_forks([partial(self.record_some, piece) for piece in pieces], self.jobs):
            found = json.loads(text or "{}")
            if not found:
                print(f"LEFT OUT, its process ended early: {pieces[number][0].nodeid} and the next ones", flush=True)
                continue
            for place, called in found["calls"].items():
                calls[place].update(called)
            seconds |= found["seconds"]
            failed |= set(found["failed"])
            print(
                f"recorded {pieces[number][0].nodeid.split('::')[0]}, {len(pieces[number])} tests, {took:.0f} s",
                flush=True,
            )
        for test in sorted(failed):
            print(f"LEFT OUT, as it fails without any mutant: {test}", flush=True)
        left = sorted(set(seconds) - failed)
        called_by = {test: sorted(calls[test] | calls[test.split("::")[0]]) for test in left}
        return {"seconds": {test: seconds[test] for test in left}, "calls": called_by}

    def record_some(self, tests: Sequence[pytest.Item]) -> str:
        self.recording = True
        for test, after in zip(tests, [*tests[1:], None], strict=True):
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
        called = {place: sorted(found) for place, found in self.calls.items()}
        return json.dumps({"seconds": self.seconds, "calls": called, "failed": self.failed})

    def met(self, mutant: Mutant, recorded: dict[str, Any], items: dict[str, pytest.Item]) -> list[pytest.Item]:
        """The tests that call its function: those of its module first, the quickest of them before the others."""
        place = f"{mutant.module}:{f'{mutant.function}:' if mutant.function else ''}"
        room, _, name = mutant.module.partition("/")
        own, seconds = f"tests/{room}/test_{name}", recorded["seconds"]
        found = [test for test, calls in recorded["calls"].items() if any(call.startswith(place) for call in calls)]
        found.sort(key=lambda test: (not test.startswith(own), seconds[test]))
        totals = accumulate(seconds[test] for test in found)
        return [items[test] for test, total in zip(found, totals, strict=True) if total < TEST_SECONDS]

    def first_failure(self, tests: Sequence[pytest.Item], mutant: Mutant) -> str:
        """The name of the first test that fails; empty where none does."""
        try:
            apply(mutant)
        except Exception:
            return "the import of its module"
        for test, after in zip(tests, [*tests[1:], None][: len(tests)], strict=True):
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=after)
            if self.failed:
                return test.nodeid
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--calls", type=Path, help="file of what tests call, written where there is none")
    parser.add_argument("--out", type=Path, help="file for the result")
    options = parser.parse_args()
    os.environ["JAXTYPING_DISABLE"] = "1"  # functions are what the modules say
    os.environ["CUDA_VISIBLE_DEVICES"] = (
        ""  # forks cannot use a GPU that their parent has seen, and torch's Adam asks for it
    )
    every, listed = possible(), equivalent()
    drawn = random.Random(options.seed).sample(every, options.count)
    chosen = [named(*one) for one in NAMED] + [one for one in drawn if not is_equivalent(one, listed)]
    session = Session(chosen, options.calls, options.jobs, options.out)
    # Memory of a new process is measured with checks of shapes, which are off here.
    selected = ["-k", "not the_estimate_covers_what_an_evaluation_takes", *TESTS]
    ended = pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", "-s", "-o", "addopts=", *selected], [session])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or len(session.outcomes) < len(chosen):
        print("The mutants were not tried: see above.")
        return 1
    killed, left_out = sum(bool(one["killed_by"]) for one in session.outcomes), len(drawn) + len(NAMED) - len(chosen)
    print(f"{killed} of {len(chosen)} killed, {left_out} equivalent, of {len(every)} possible")
    return int(killed < NEEDED * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
