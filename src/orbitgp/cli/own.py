"""Orbits and feature maps of the user's own: ``my.py:TimeShift`` or ``my.py:TimeShift(2.0)``.

The file is executed, so it must be named on the command line each time. A run folder only remembers its name: opening a
run from a stranger executes nothing.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(?P<arguments>\(.*\))?", re.DOTALL)


def is_own(text: str) -> bool:
    """Whether this names a class in a file."""
    return _FORM.fullmatch(text.strip()) is not None


def named_again(orbits: Iterable[str], settings: Mapping[str, Any]) -> str:
    """The options that name classes of the user's own again, with a space before each; empty where there are none."""
    options = [*(("--orbit", orbit) for orbit in orbits), ("--feature-map", settings["feature_map"])]
    return "".join(f" {option} {shlex.quote(text)}" for option, text in options if is_own(text))


def make_own(text: str, kind: type[nn.Module]) -> Any:
    """The object: its class from the file, with the arguments in parentheses."""
    from orbitgp.orbits.description import listed

    found = _FORM.fullmatch(text.strip())
    assert found is not None
    path, name = Path(found["file"]), found["name"]
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to take {name} from.")
    module = _module(path)
    made = getattr(module, name, None)
    if not (isinstance(made, type) and issubclass(made, kind)):
        own = [n for n, c in vars(module).items() if isinstance(c, type) and issubclass(c, kind) and c.__module__ == path.stem]
        has = f"it has {listed(own)}" if own else "it has none"
        raise TypeError(f"{path} has no class {name} that derives from {kind.__name__}: {has}.")
    try:
        call = ast.parse(f"f{found['arguments'] or '()'}", mode="eval").body
        assert isinstance(call, ast.Call)
        values = [ast.literal_eval(argument) for argument in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, SyntaxError, AssertionError):
        raise ValueError(f"the arguments of {text} must be numbers, texts, pairs, True, False or None.") from None
    try:
        return made(*values, **named)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text} is not possible: {error}") from None


def _module(path: Path) -> Any:
    """The file as a module that worker processes find, too."""
    folder, stem = str(path.resolve().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(stem)
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise ValueError(f"{path} has the name of another module, {module.__file__}: call it something else.")
    return module
