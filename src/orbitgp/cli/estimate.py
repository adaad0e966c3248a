"""The estimators of a run, how long they will take, said before they begin, and who tells their progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from orbitgp.cli.own import make_feature_map

if TYPE_CHECKING:
    from orbitgp.cli.run import Run
    from orbitgp.comparison.parallel import Job
    from orbitgp.orbits import Orbit
    from orbitgp.training.engine import Engine
    from orbitgp.training.progress import Progress

_LONG = 10.0  # seconds, above which a person is told beforehand
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side


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


def print_estimate(run: Run, models: Sequence[Any], workers: int = 1) -> list[float]:
    """Seconds that each of these estimators will take. They are printed, if many, with what would take half as long."""
    from orbitgp.cli.processes import count, own_rows
    from orbitgp.planning.plan import duration

    x, y, colour = run.data.x, run.data.y, run.data.options.colour

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
        offers[f"--resize {_SIDE}x{_SIDE}"] = x[..., :: x.shape[-2] // _SIDE, :: x.shape[-1] // _SIDE], y
    less = {}
    for option, data in offers.items() if count() == 1 else ():
        with suppress(ValueError):  # data of one class, or images of one colour: nothing that can be offered
            less[option] = sum(planned(*data)) / workers
    quicker = [f"{option} would take {duration(took)}" for option, took in less.items() if took <= seconds / 2]
    run.say("; ".join([f"this will take about {duration(seconds)} on a free machine", *quicker]))
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
