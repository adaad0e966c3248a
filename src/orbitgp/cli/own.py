"""Feature maps by name, and orbits and feature maps of the user's own: ``my.py:TimeShift`` or ``my.py:TimeShift(2.0)``.

The file of a class is executed, so it must be named on the command line each time. A run folder only remembers its name:
opening a run from a stranger executes nothing.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# Classes of orbitgp.kernels, the outer one first. They are not imported: help and completion must not wait for torch.
OF_IMAGES = {"gradients": ["OrientedGradients"], "framed-gradients": ["Frame", "OrientedGradients"], "frame": ["Frame"]}
OF_SIGNALS = {"shapes": ["ShapeHistograms"], "derivative": ["SmoothDerivative"]}
_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(?P<arguments>\(.*\))?", re.DOTALL)


def is_own(text: str) -> bool:
    """Whether this names a class in a file."""
    return _FORM.fullmatch(text.strip()) is not None


def named_again(orbits: Iterable[str], settings: Mapping[str, Any]) -> str:
    """The options that name classes of the user's own again, with a space before each; empty where there are none."""
    options = [*(("--orbit", orbit) for orbit in orbits), ("--feature-map", settings["feature_map"])]
    return "".join(f" {option} {shlex.quote(text)}" for option, text in options if is_own(text))


def check_named_again(config: Mapping[str, Any], orbits: Sequence[str], feature_map: str) -> None:
    """A run that is opened again executes files of the user only if they are named again."""
    known = config["settings"]["feature_map"]
    missing = [orbit for orbit in config["orbits"] if orbit not in orbits]
    if again := named_again(missing, {"feature_map": "" if known == feature_map else known}):
        raise ValueError(f"this run executes a file of yours: name it again,{again}.")


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
        raise TypeError(f"{path} has no class {name} that derives from {kind.__name__}: it has {listed(own or ['none'])}.")
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


def make_feature_map(text: str) -> nn.Module | None:
    """The map of this name, or of a class of the user's own."""
    from torch import nn

    from orbitgp import kernels

    made: nn.Module | None = make_own(text, nn.Module) if is_own(text) else None
    classes = {"none": [], **OF_IMAGES, **OF_SIGNALS}
    if made is None and text not in classes:
        raise ValueError(f"--feature-map is {', '.join(classes)} or a class of your own, as in my.py:Spectrum, not {text!r}.")
    for name in reversed(classes.get(text, [])):
        made = getattr(kernels, name)(*([] if made is None else [made]))
    return made
