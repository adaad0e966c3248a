"""The models of a run: feature maps by name, classes of the user's own, estimators, how long these take, and their progress.

An orbit or a feature map of the user's own is written ``my.py:TimeShift`` or ``my.py:TimeShift(2.0)``. The file of a class is
executed, so it must be named on the command line each time. A run folder only remembers its name: opening a run from a stranger
executes nothing.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitgp.cli.processes import count, own_rows

if TYPE_CHECKING:
    from torch import nn

    from orbitgp.comparison.parallel import Job
    from orbitgp.datasets.files import Data
    from orbitgp.orbits import Orbit
    from orbitgp.training.progress import Progress
    from orbitgp.training.run import Engine

# Classes of orbitgp.kernels, the outer one first. They are not imported: help and completion must not wait for torch.
OF_IMAGES = {
    "gradients": ["OrientedGradients"],
    "framed-gradients": ["Frame", "OrientedGradients"],
    "frame": ["Frame"],
    "patches": ["PatchDictionary"],
}
OF_SIGNALS = {"shapes": ["ShapeHistograms"], "derivative": ["SmoothDerivative"]}
_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(?P<arguments>\(.*\))?", re.DOTALL)
_LONG = 10.0  # seconds, above which a person is told beforehand
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side


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


def estimator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings as arguments of an estimator."""
    settings, shape = dict(config["settings"]), config["read_options"]["image_shape"]
    settings["random_state"] = settings.pop("seed")
    settings["ard"] = {"no": False, "yes": True}.get(settings["ard"], "auto" if config["read_options"]["scales"] else False)
    settings["feature_map"] = make_feature_map(settings["feature_map"])
    settings["image_shape"] = tuple(shape) if shape else None
    return settings


def estimator_for(config: dict[str, Any], orbit: Orbit | None, **changed: Any) -> Any:
    """The estimator of this task, with the settings of the run but those changed."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor

    estimator = InvariantGPClassifier if config["task"] == "classification" else InvariantGPRegressor
    return estimator(orbit, **{**estimator_settings(config), **changed})


def tell_estimate(say: Callable[[str], None], data: Data, models: Sequence[Any], workers: int = 1) -> list[float]:
    """Seconds that each of these estimators will take. They are said, if many, with what would take half as long."""
    from orbitgp.planning.plan import duration

    x, y, colour = data.x, data.y, data.options.colour

    def planned(x: Any, y: Any) -> list[float]:
        return [model.plan(own_rows(x), own_rows(y)).seconds or 0.0 for model in models]

    plans, rows = planned(x, y), len(x)
    seconds = sum(plans) / workers
    if seconds < _LONG:
        return plans
    offers = {}
    if rows // 2 >= _FEWEST:
        offers[f"--max-data {rows // 2}"] = x[::2], y[::2]
    if colour and x[0].size > _VALUES:
        every = [max(1, size // _SIDE) for size in x.shape[-2:]]
        offers[f"--resize {_SIDE}x{_SIDE}"] = x[..., :: every[0], :: every[1]], y
    less = {}
    for option, part in offers.items() if count() == 1 else ():
        with suppress(ValueError):  # data of one class, or images of one colour: nothing that can be offered
            less[option] = sum(planned(*part)) / workers
    quicker = [f"{option} would take {duration(took)}" for option, took in less.items() if took <= seconds / 2]
    say("; ".join([f"this will take about {duration(seconds)} on a free machine", *quicker]))
    return plans


def teller(bar: Progress, name: str) -> Callable[[Mapping[str, Any]], None]:
    """A callback of ``fit`` for a model of this name."""
    tell = partial(bar.record)
    tell.begin = lambda engine: bar.begin(engine, name)  # type: ignore[attr-defined]
    return tell


class Watch:
    """Tells the progress of a comparison; an argument of :func:`orbitgp.compare`."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar

    def begin(self, job: Job, engine: Engine) -> None:
        """A job begins, in this process."""
        self.bar.begin(engine, _name(job))

    def __call__(self, job: Job, record: Mapping[str, Any] | None) -> None:
        """A record of a job, or None when it is done. Records of a worker come all at once when it is."""
        if record is None:
            self.bar.end(_name(job))
        else:
            self.bar.record(dict(record))


def _name(job: Job) -> str:
    return job.name + (f" ({job.purpose}, seed {job.seed})" if job.purpose else f", seed {job.seed}")
