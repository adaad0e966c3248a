"""The models of a run: feature maps by name, estimators, how long these take, and their progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from orbitgp.cli.processes import count, own_rows

if TYPE_CHECKING:
    from torch import nn

    from orbitgp.datasets.files import Data
    from orbitgp.orbits import Orbit

# Classes of orbitgp.kernels, the outer one first. They are not imported: help must not wait for torch.
OF_IMAGES = {
    "gradients": ["OrientedGradients"],
    "framed-gradients": ["Frame", "OrientedGradients"],
    "frame": ["Frame"],
    "patches": ["PatchDictionary"],
}
OF_SIGNALS = {"shapes": ["ShapeHistograms"], "derivative": ["SmoothDerivative"]}
_LONG = 10.0  # seconds, above which a person is told beforehand
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side


def make_feature_map(text: str) -> nn.Module | None:
    """The map of this name."""
    from orbitgp import kernels

    made: nn.Module | None = None
    classes = {"none": [], **OF_IMAGES, **OF_SIGNALS}
    if text not in classes:
        raise ValueError(f"--feature-map is {', '.join(classes)}, not {text!r}; Python takes maps of your own.")
    for name in reversed(classes[text]):
        made = getattr(kernels, name)(*([] if made is None else [made]))
    return made


def estimator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings as arguments of an estimator."""
    settings, shape = dict(config["settings"]), config["read_options"]["image_shape"]
    settings["random_state"], settings["verbose"] = settings.pop("seed"), False  # a command has a bar of its own
    scaled = bool(config["read_options"]["scales"])
    settings["ard"] = {"no": False, "yes": True}.get(settings["ard"], scaled and "auto")
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
        every = [-(-size // _SIDE) for size in x.shape[-2:]]
        offers[f"--resize {_SIDE}x{_SIDE}"] = x[..., :: every[0], :: every[1]], y
    less = {}
    for option, part in offers.items() if count() == 1 and not models[0].max_seconds else ():
        with suppress(ValueError):  # data of one class, or images of one colour: nothing that can be offered
            less[option] = sum(planned(*part)) / workers
    quicker = [f"{option} would take {duration(took)}" for option, took in less.items() if took <= seconds / 2]
    say("; ".join([f"this will take about {duration(seconds)} on a free machine", *quicker]))
    return plans
