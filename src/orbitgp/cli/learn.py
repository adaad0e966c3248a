"""``orbitgp learn``: train a model, and keep it with a report in a run folder."""

from __future__ import annotations

import json
import shlex
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitgp.cli import arguments as o
from orbitgp.cli.errors import INTERRUPTED, guarded
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import report_content, result_of, say
from orbitgp.cli.run_folder import Folder, save_run

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FOLDER", help="The run folder. By default a new one in runs/.", rich_help_panel="Output"),
]
Orbit = Annotated[
    str | None, typer.Option("--orbit", "-o", metavar="ORBIT", help=o.ORBIT_HELP, autocompletion=o.complete_orbit)
]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Train without invariance too, to say what it is worth.")
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN", help="Go on with the run in this folder, where it was stopped or killed; other options are its own."
    ),
]


@guarded
def learn(
    data: o.DataArgument = "digits",
    orbit: Orbit = None,
    out: Out = None,
    baseline: Baseline = True,
    resume: Resume = None,
    target: o.Target = None,
    targets: o.Targets = None,
    test: o.Test = None,
    test_fraction: o.TestFraction = 0.0,
    max_data: o.MaxData = None,
    image_shape: o.ImageShape = None,
    resize: o.Resize = None,
    invert: o.Invert = False,
    task: o.Task = "auto",
    data_dir: o.DataDir = None,
    likelihood: o.Likelihood = "auto",
    feature_map: o.FeatureMap = "none",
    num_inducing: o.NumInducing = 200,
    num_samples: o.NumSamples = 16,
    max_steps: o.MaxSteps = 250,
    max_seconds: o.MaxSeconds = None,
    batch_size: o.BatchSize = 512,
    seed: o.Seed = 0,
    device: o.Device = "cpu",
    json_: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Learn an invariance of the data: how far it goes, and what it is worth.

    Trains a Gaussian process that averages over an orbit of every input, and learns the size of the orbit from the marginal
    likelihood. Ends with a sentence such as "insensitive to rotations within ±17°; evidence +41,200 nats over no invariance",
    and writes a folder with the model, its history and a report to open in a browser.

    Ctrl-C stops cleanly and keeps the model so far; --resume goes on.

    Examples:

        orbitgp learn
        orbitgp learn mnist --orbit affine --max-data 5000
        orbitgp learn measured.csv --target yield --orbit "swap(0, 1)"
    """
    if resume is not None:
        folder = Folder.existing(resume)
        config = folder.read(folder.config)
        if config.get("command") != "learn":
            raise ValueError(f"{resume} was not made by orbitgp learn: there is nothing to resume.")
        if folder.result.is_file() and not folder.checkpoint.is_file():
            raise ValueError(f"{resume} is finished: there is nothing to resume; orbitgp show {resume} says what came out.")
        source = o.DataOptions(**config["data"])
        loaded = source.load()
    else:
        source = o.DataOptions(
            data, target, targets, test, test_fraction, max_data, image_shape, resize, invert, data_dir, seed
        )
        settings = {
            "likelihood": likelihood,
            "feature_map": None if feature_map == "none" else feature_map,
            "num_inducing": num_inducing,
            "num_samples": num_samples,
            "max_steps": max_steps,
            "max_seconds": max_seconds,
            "batch_size": batch_size,
            "device": device,
        }
        loaded = source.load()
        extra = [] if baseline else ["--no-baseline"]
        config = configuration("learn", source, loaded, orbit or default_orbit(loaded), task, settings, seed, *extra)
        config["baseline"] = baseline
        check(config, loaded)
        folder = Folder.new(out, data, config["orbit"])
        write_config(folder, config)
    _train(folder, config, loaded, json_, quiet)


def default_orbit(data: Data) -> str:
    """Rotation for images, noise for tables."""
    return "rotation" if data.x_train.ndim > 2 or data.reading.image_shape else "noise"


def configuration(
    command: str, source: o.DataOptions, data: Data, orbit: str, task: str, settings: dict[str, Any], seed: int, *extra: str
) -> dict[str, Any]:
    """All that is needed to do it again."""
    import torch

    import orbitgp

    orbits = orbit.split("|")
    words = ["orbitgp", command, *source.arguments(), *(word for one in orbits for word in ("--orbit", one)), *extra]
    words += ["--task", task] if task != "auto" else []
    words += o.settings_arguments(
        {**settings, "likelihood": None if settings["likelihood"] == "auto" else settings["likelihood"]}
    )
    words += ["--seed", str(seed)]
    return {
        "orbitgp": orbitgp.__version__,
        "command": command,
        "again": shlex.join(words),
        "data": asdict(_absolute(source)),
        "name": data.name,
        "orbit": orbit,
        "task": data.task if task == "auto" else task,
        "settings": settings,
        "seed": seed,
        "threads": torch.get_num_threads(),
        "reading": asdict(data.reading),
        "inputs": {"low": float(data.x_train.min()), "high": float(data.x_train.max())},
    }


def _absolute(source: o.DataOptions) -> o.DataOptions:
    """Paths that hold in another working directory too."""

    def resolved(path: str | None) -> str | None:
        return str(Path(path).resolve()) if path and Path(path).exists() else path

    return replace(
        source,
        data=resolved(source.data) or source.data,
        targets=resolved(source.targets),
        test=resolved(source.test),
        data_dir=resolved(source.data_dir),
    )


def write_config(folder: Folder, config: dict[str, Any]) -> None:
    """First of all the files."""
    from orbitgp.saving.atomic import write_json

    write_json(folder.config, config)


def estimator(config: dict[str, Any], orbit: Any) -> Any:
    """The estimator of this run, not yet fitted."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor

    kind = InvariantGPClassifier if config["task"] == "classification" else InvariantGPRegressor
    return kind(orbit, random_state=config["seed"], **estimator_settings(config))


def estimator_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Settings as the estimator takes them."""
    from orbitgp.kernels.oriented_gradients import OrientedGradients

    shape, settings = config["reading"]["image_shape"], dict(config["settings"])
    if settings.get("feature_map") is not None:
        settings["feature_map"] = OrientedGradients()
    return {**settings, "image_shape": tuple(shape) if shape else None}


def features(config: dict[str, Any], data: Data) -> tuple[int, ...]:
    """The shape of one input, as the orbit sees it."""
    return tuple(config["reading"]["image_shape"] or data.x_train.shape[1:])


def check(config: dict[str, Any], data: Data) -> None:
    """Complain before anything is written."""
    import torch

    from orbitgp.orbits.parse import make_orbit

    shape = features(config, data)
    for text in config["orbit"].split("|"):
        try:
            make_orbit(text, shape).check(torch.Size(shape))
        except ValueError as error:
            hint = str(error).replace("set image_shape.", "say what shape the rows have, as in --image-shape 28x28.")
            raise ValueError(hint) from None
    if config["settings"]["feature_map"] is not None and len(shape) not in (2, 3):
        raise ValueError(
            f"--feature-map is for images, but the inputs have shape {shape}: "
            "say what shape the rows have, as in --image-shape 28x28."
        )


def _train(folder: Folder, config: dict[str, Any], data: Data, json_: bool, quiet: bool) -> None:
    import torch

    from orbitgp.orbits import Identity
    from orbitgp.orbits.parse import make_orbit
    from orbitgp.saving.atomic import write_json

    torch.set_num_threads(config["threads"])
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)
    orbit = make_orbit(config["orbit"], features(config, data))
    start = orbit.describe()
    units = {name: quantity.unit for name, quantity in start.quantities.items()}
    wants_plain = config["baseline"] and not isinstance(orbit, Identity)
    steps = config["settings"]["max_steps"]
    with Progress(steps * (2 if wants_plain else 1), units, quiet) as progress, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fit was stopped")
        warnings.filterwarnings("ignore", message="Ctrl-C came")
        model = estimator(config, orbit).fit(
            data.x_train,
            data.y_train,
            callback=lambda record: progress.record(config["orbit"], record),
            checkpoint=folder.checkpoint,
            checkpoint_every=30.0,
            resume=True,
        )
        plain = None
        if wants_plain and not model.interrupted_:
            if not folder.baseline.is_file():
                other = estimator(config, None)
                other.fit(data.x_train, data.y_train, callback=lambda record: progress.record("no invariance", record))
                if not other.interrupted_:
                    write_json(folder.baseline, {"evidence": other.evidence_.value})
            plain = folder.read(folder.baseline)["evidence"] if folder.baseline.is_file() else None
    content = report_content(data, model, start, config, plain)
    result = result_of(content, folder, config)
    save_run(folder, content, result)
    if not model.interrupted_:
        folder.checkpoint.unlink(missing_ok=True)
    if json_:
        typer.echo(json.dumps(result, indent=1))
    else:
        say(result, folder)
    if model.interrupted_:
        again = shlex.quote(str(folder.path))
        typer.echo(f"stopped after {result['steps']} of {steps} steps: go on with orbitgp learn --resume {again}", err=True)
        raise typer.Exit(INTERRUPTED)
