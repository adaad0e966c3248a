"""What a run is made from: the content of ``config.json``, checked before anything is written."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.own import OF_IMAGES, OF_SIGNALS, is_own, make_feature_map, make_own

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data
    from orbitgp.orbits import Orbit


class Configuration(TypedDict):
    """What commands read of ``config.json``."""

    command: str
    again: str
    data: DataOptions
    name: str
    orbits: list[str]
    orbit: str
    task: Literal["classification", "regression"]
    task_reason: str
    settings: TrainingSettings
    decided: NotRequired[dict[str, str]]  # what ``auto`` came to
    threads: int
    read_options: dict[str, Any]
    inputs: tuple[float, float]  # the smallest and the largest number among them
    asked: dict[str, bool | float | str | None]  # what only this command is asked for


def configuration(
    command: str,
    options: DataOptions,
    settings: TrainingSettings,
    data: Data,
    orbits: list[str],
    asked: dict[str, bool | float | str | None],
) -> dict[str, Any]:
    """All that is needed to repeat a run; ``asked`` are the options that only this command has."""
    import torch

    import orbitgp

    chosen = {f.name: value for f in fields(options) if (value := getattr(options, f.name)) != f.default and f.name != "data"}
    chosen |= {"orbit": orbits, **{name: value for name, value in asked.items() if value is not True}, **asdict(settings)}
    task, reason = (data.task, data.task_reason) if options.task == "auto" else (options.task, "as --task says")
    column = data.options.target
    of = "" if column is None else f" of column {column!r} ({'--target' if options.target else 'by its name'})"
    return {
        "orbitgp": orbitgp.__version__,
        "command": command,
        "again": shlex.join(["orbitgp", command, options.data, *option_words(chosen)]),
        "data": asdict(options.absolute()),
        "name": data.name,
        "orbits": orbits,
        "orbit": orbits[0],
        "task": task,
        "task_reason": f"{task}{of}: {reason}",  # "regression of column 'yield' (--target): the targets are numbers"
        "settings": asdict(settings),
        "threads": torch.get_num_threads(),
        "read_options": asdict(data.options),
        "inputs": [float(data.x.min()), float(data.x.max())],
        "asked": asked,
    }


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as one would type them; those without a value are left out."""
    words = []
    for field, value in options.items():
        name = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [word for one in (value if isinstance(value, list) else [value]) for word in (f"--{name}", str(one))]
    return words


def check(config: dict[str, Any], data: Data) -> None:
    """Raise an error for a task, orbits and feature maps that do not fit the data."""
    import torch

    from orbitgp.orbits import GaussianNoise

    y = data.y
    if config["task"] == "regression" and y.dtype.kind in "US":
        raise ValueError(f"regression needs numbers, but the targets are words, such as {y[0]!s:.40}.")
    if config["task"] == "classification" and y.dtype.kind == "f" and (y != y.round()).any():
        raise ValueError(f"classification needs classes, but the targets are decimals, such as {y[y != y.round()][0]:g}.")
    if config["data"]["interval"] is not None and not data.options.signal:
        raise ValueError("--interval is for signals: say that the rows are signals, with --signal.")
    shape, advice = data.input_shape, "say what shape the rows have, as in --image-shape 28x28."
    without_numbers = all(scale == (0.0, 1.0) for scale in data.options.scales or [()])
    for orbit in config["orbits"]:
        try:
            made = orbit_for(config, orbit, data)
            made.check(torch.Size(shape))
            if without_numbers and any(isinstance(part, GaussianNoise) for part in made.modules()):
                raise ValueError("noise is for columns of numbers that vary, and this table has none.")
        except ValueError as error:
            raise ValueError(str(error).replace("set image_shape.", advice)) from None
    if config["settings"]["ard"] == "yes" and data.options.scales is None:
        raise ValueError("--ard yes is for tables whose columns are standardised.")
    feature_map = config["settings"]["feature_map"]
    if feature_map in OF_IMAGES and (data.options.signal or len(shape) not in (2, 3)):
        raise ValueError(f"--feature-map {feature_map} is for images, but the inputs have shape {shape}: {advice}")
    if feature_map in OF_SIGNALS and not data.options.signal:
        raise ValueError(f"--feature-map {feature_map} is for signals: say that the rows are signals, with --signal.")


def orbit_text(config: dict[str, Any], orbit: str) -> str:
    """The orbit in words, with the interval between samples if there is one."""
    from orbitgp.orbits.parse import with_axis

    axis = DataOptions(**config["data"]).axis()
    return orbit if axis is None else with_axis(orbit, *axis)


def orbit_for(config: dict[str, Any], orbit: str, data: Data) -> Orbit:
    """The orbit of a text, which may name columns of the data."""
    from orbitgp.orbits import Orbit
    from orbitgp.orbits.parse import make_orbit

    if is_own(orbit):
        own: Orbit = make_own(orbit, Orbit)
        return own
    return make_orbit(orbit_text(config, orbit), data.input_shape, data.options.features)


def estimator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings as arguments of an estimator."""
    settings, shape = dict(config["settings"]), config["read_options"]["image_shape"]
    settings["random_state"] = settings.pop("seed")
    settings["ard"] = {"no": False, "yes": True}.get(settings["ard"], "auto" if config["read_options"]["scales"] else False)
    settings["feature_map"] = make_feature_map(settings["feature_map"])
    settings["image_shape"] = tuple(shape) if shape else None
    return settings
