"""What holds for every test: shapes are checked, warnings are errors (pyproject.toml), randomness starts from a fixed
seed."""

from __future__ import annotations

import gc
import inspect
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import jaxtyping
import numpy as np
import pytest

gc.disable()  # until all is imported

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

if os.name == "nt":  # these limit memory, fork, and send signals
    collect_ignore = ["experiments/test_many_digits.py", "test_mutants.py"]
    collect_ignore += [f"fuzz/test_{name}.py" for name in ("faults", "hostile", "load")]

COMPILED = "orbitgp.kernels.pair_sums"  # Triton compiles the source of these functions
CHECKED_CALLS = 3  # a call that is checked takes as long as several that are not


class Calls(Counter[int]):
    """Calls of each function in this test. All but one count as made if an earlier test of the file called it."""

    file = ""
    known: frozenset[int] = frozenset()

    def __missing__(self, key: int) -> int:
        return CHECKED_CALLS - 1 if key in self.known else 0

    def begin(self, file: str) -> None:
        self.known = self.known | self.keys() if file == self.file else frozenset()
        self.file = file
        self.clear()


calls = Calls()
templates: dict[str, Any] = {}
jaxtyped = jaxtyping.jaxtyped


def check_first_calls(function: Any = None, **options: Any) -> Any:
    """jaxtyping's decorator, put on when a function is first called, and in force for its first calls.

    Functions that name no shapes stay as they are: mypy checks their types. Calls are counted anew in each test. The
    first test of a file that calls a function checks its first calls, and later ones check one. A function within
    another is made anew whenever that is called, and stays as it is once enough of its calls were checked.
    """
    if function is None:
        return partial(check_first_calls, **options)
    is_a_dataclass: bool = is_dataclass(function)
    if is_a_dataclass and "__init__" in vars(function):
        function.__init__ = check_first_calls(function.__init__, **options)
    if not inspect.isfunction(function) or function.__module__ == COMPILED or not names_shapes(function):
        return function
    code = id(function.__code__)
    if "<locals>" in function.__qualname__ and calls[code] >= CHECKED_CALLS:
        return function
    checked = cache(lambda: jaxtyped(function, **options))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[code] = number = calls[code] + 1
        return (checked() if number <= CHECKED_CALLS else function)(*args, **kwargs)

    return call


def names_shapes(function: Any) -> bool:
    """Whether an annotation is a type of jaxtyping, or one that the module has made of it."""
    names = {name for hint in function.__annotations__.values() for name in re.findall(r"\w+", str(hint))}
    return any(is_shape(function.__globals__.get(name)) for name in names)


def is_shape(hint: Any) -> bool:
    return getattr(hint, "__module__", None) == "jaxtyping" or any(is_shape(part) for part in get_args(hint))


# What orbitgp imports is imported here: under the hook below, Python finds no compiled file of other packages either,
# and compiles them again. Not all of it is everywhere. The process that only hands tests to workers (pytest -n 2) needs
# none of it, and the workers wait for it.
if IS_WORKER or "-n" not in sys.argv:
    for name in ("gpytorch", "matplotlib.figure", "pandas", "scipy.stats", "sklearn.base"):
        with suppress(ImportError):
            import_module(name)

# Before anything of orbitgp is imported: every shape annotation becomes an assertion, where something can check it.
if os.environ.get("JAXTYPING_DISABLE") != "1" and find_spec("beartype") is not None:
    vars(jaxtyping)["jaxtyped"] = check_first_calls
    jaxtyping.install_import_hook("orbitgp", "beartype.beartype")

# A process that a shell starts in the background ignores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

if IS_WORKER:
    import torch

    torch.set_num_threads(1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with slow tests first, those with most of them at the front; quick tests are left for the end.

    Two processes begin with half of the list each, and the one that is done first takes over from the end of the
    other's half.
    """
    modules: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.path].append(item)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    first, second = ([item for path, _ in slow.most_common()[half::2] for item in modules[path]] for half in (0, 1))
    quick = [item for item in items if item.path not in slow]
    room = max(0, len(items) // 2 - len(first))
    items[:] = first + quick[:room] + second + quick[room:]


def pytest_collection_finish() -> None:
    """From here on, garbage is looked for among what tests make, not among all that was imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """Every test starts from seed 0, whichever tests ran before it."""
    import torch

    calls.begin(request.node.nodeid.partition("::")[0])
    seed_torch = torch.manual_seed if torch.cuda.is_initialized() else torch.default_generator.manual_seed
    seed_torch(0)  # the former takes a millisecond: it notes where it was called
    np.random.seed(0)  # noqa: NPY002  (scikit-learn draws from the global generator)
    return 0


@pytest.fixture
def double() -> Iterator[None]:
    """Tensors are float64 unless a test says otherwise."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def empty_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have empty charts: to draw them takes as long as to learn. Their template is compiled once."""
    from markupsafe import Markup

    from orbitgp.report import charts, page

    environment = vars(page)["Environment"]
    monkeypatch.setattr(page, "Environment", lambda **given: templates.setdefault("report", environment(**given)))

    monkeypatch.setattr(
        charts, "svg", lambda axes, title, kind="chart": Markup(f'<svg role="img" class="{kind}"></svg>')
    )


@pytest.fixture
def short_ends() -> Iterator[None]:
    """Sparse fits are quick to end. Processes that are forked before know nothing of it."""
    from tests import quick_fits

    with quick_fits.short_ends():
        yield


@pytest.fixture
def one_start() -> Iterator[None]:
    """Exact fits are climbed from one start."""
    from tests import quick_fits

    with quick_fits.one_start():
        yield
