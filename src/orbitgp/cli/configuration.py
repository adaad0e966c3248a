"""What a run is made from: the content of ``config.json``, checked before anything is written."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orbitgp.cli.arguments import DataOptions, TrainingSettings, option_words

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data


def configuration(
    command: str, options: DataOptions, settings: TrainingSettings, data: Data, orbits: list[str], *extra: str
) -> dict[str, Any]:
    """All that is needed to repeat a run; ``extra`` are the words of options that only this command has."""
    import torch

    import orbitgp

    words = ["orbitgp", command, options.data, *option_words(options, defaults=False)]
    words += [word for orbit in orbits for word in ("--orbit", orbit)]
    words += [*extra, *option_words(settings, defaults=True)]
    return {
        "orbitgp": orbitgp.__version__,
        "command": command,
        "again": shlex.join(words),
        "data": asdict(options.absolute()),
        "name": data.name,
        "orbits": orbits,
        "orbit": orbits[0],
        "task": data.task if options.task == "auto" else options.task,
        "task_reason": _task_reason(options, data),
        "settings": asdict(settings),
        "threads": torch.get_num_threads(),
        "read_options": asdict(data.read_options),
        "inputs": {"low": float(data.x_train.min()), "high": float(data.x_train.max())},
    }


def _task_reason(options: DataOptions, data: Data) -> str:
    """What is learned and how that was decided: "regression of column 'yield' (--target): the targets are numbers"."""
    column = data.read_options.target
    of = "" if column is None else f" of column {column!r} ({'--target' if options.target else 'by its name'})"
    if options.task == "auto":
        return f"{data.task}{of}: {data.task_reason}"
    return f"{options.task}{of}: as --task says"


def check(config: dict[str, Any], data: Data) -> None:
    """Raise an error for orbits and feature maps that do not fit the data."""
    import torch

    from orbitgp.orbits.parse import make_orbit

    shape, advice = input_shape(data), "say what shape the rows have, as in --image-shape 28x28."
    for orbit in config["orbits"]:
        try:
            make_orbit(orbit_text(config, orbit), shape).check(torch.Size(shape))
        except ValueError as error:
            raise ValueError(str(error).replace("set image_shape.", advice)) from None
    feature_map = config["settings"]["feature_map"]
    if feature_map == "gradients" and (data.has_signals or len(shape) not in (2, 3)):
        raise ValueError(f"--feature-map gradients is for images, but the inputs have shape {shape}: {advice}")
    if feature_map in ("shapes", "derivative") and not data.has_signals:
        raise ValueError(f"--feature-map {feature_map} is for signals: say that the rows are signals, with --signal.")


def orbit_text(config: dict[str, Any], orbit: str) -> str:
    """The orbit in words, with the interval between samples if there is one."""
    from orbitgp.orbits.parse import with_axis

    axis = DataOptions(**config["data"]).axis()
    return orbit if axis is None else with_axis(orbit, *axis)


def input_shape(data: Data) -> tuple[int, ...]:
    """The shape of one input, as the orbit sees it."""
    return tuple(data.read_options.image_shape or data.x_train.shape[1:])


def estimator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings as arguments of an estimator."""
    from orbitgp.kernels import OrientedGradients, ShapeHistograms, SmoothDerivative

    settings, shape = dict(config["settings"]), config["read_options"]["image_shape"]
    settings["random_state"] = settings.pop("seed")
    maps = {"gradients": OrientedGradients, "shapes": ShapeHistograms, "derivative": SmoothDerivative}
    settings["feature_map"] = None if settings["feature_map"] == "none" else maps[settings["feature_map"]]()
    settings["image_shape"] = tuple(shape) if shape else None
    return settings
