"""``orbitgp learn``: train a model, and keep it with a report in a run folder."""

from __future__ import annotations

import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.configuration import check, configuration, estimator_settings, input_shape
from orbitgp.cli.errors import INTERRUPTED, print_errors
from orbitgp.cli.processes import among_processes, check_shared, first_does, leave, number, part
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import print_notes, print_result, report_content, result_of
from orbitgp.cli.run_folder import RunFolder
from orbitgp.saving.atomic import write_json

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data

Orbit = Annotated[
    str | None,
    typer.Option("--orbit", "-o", metavar="ORBIT", help=arguments.ORBIT_HELP, autocompletion=arguments.complete_orbit),
]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Train without invariance too, to say what it is worth.")
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Go on with the stopped or killed run in this folder; it keeps its own options."),
]


@arguments.expand_options()
@print_errors
@among_processes
def learn(
    options: DataOptions,
    settings: TrainingSettings,
    orbit: Orbit = None,
    out: arguments.Out = None,
    baseline: Baseline = True,
    resume: Resume = None,
    json_: arguments.Json = False,
    quiet: arguments.Quiet = False,
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
        torchrun --nproc-per-node=2 -m orbitgp learn mnist --orbit affine
    """
    if resume is not None:
        folder = RunFolder.open(resume)
        config = folder.read_json(folder.config)
        if config.get("command") != "learn":
            raise ValueError(f"{resume} was not made by orbitgp learn: there is nothing to resume.")
        if folder.result.is_file() and not folder.checkpoint.is_file():
            raise ValueError(f"{resume} is finished: there is nothing to resume; orbitgp show {resume} says what came out.")
        data = DataOptions(**config["data"]).load(config["settings"]["seed"])
    else:
        data = options.load(settings.seed)
        orbits = [orbit or ("rotation" if data.has_images else "noise")]
        config = configuration("learn", options, settings, data, orbits, *([] if baseline else ["--no-baseline"]))
        config["baseline"] = baseline
        check(config, data)
        check_shared(len(data.y_train))
        folder = first_does(lambda: _new_folder(out, config))
    _train(folder, config, data, json_, quiet)


def _new_folder(out: Path | None, config: dict[str, Any]) -> RunFolder:
    folder = RunFolder.create(out, config["data"]["data"], config["orbit"])
    write_json(folder.config, config)
    return folder


def _train(folder: RunFolder, config: dict[str, Any], data: Data, json_: bool, quiet: bool) -> None:
    import torch

    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.orbits import Identity
    from orbitgp.orbits.parse import make_orbit

    torch.set_num_threads(config["threads"])
    print_notes(data, config, quiet)
    estimator = InvariantGPClassifier if config["task"] == "classification" else InvariantGPRegressor
    orbit = make_orbit(config["orbit"], input_shape(data))
    start = orbit.describe()
    units = {name: quantity.unit for name, quantity in start.quantities.items()}
    wants_plain = config["baseline"] and not isinstance(orbit, Identity)
    steps = config["settings"]["max_steps"]
    with Progress(2 if wants_plain else 1, steps, units, quiet=quiet) as progress, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fit was stopped|Ctrl-C came")
        x, y = part(data.x_train), part(data.y_train)
        model = estimator(orbit, **estimator_settings(config)).fit(
            x,
            y,
            callback=lambda record: progress.record(config["orbit"], record),
            checkpoint=folder.checkpoint,
            checkpoint_every=30.0,
            resume=True,
        )
        plain = None
        if wants_plain and not model.interrupted_:
            if not folder.baseline.is_file():
                other = estimator(None, **estimator_settings(config))
                other.fit(x, y, callback=lambda record: progress.record("no invariance", record))
                if not other.interrupted_ and number() == 0:
                    write_json(folder.baseline, {"evidence": other.evidence_.value})
            plain = folder.read_json(folder.baseline)["evidence"] if folder.baseline.is_file() else None
    if not leave():
        return
    content = report_content(data, model, start, config, plain)
    result = result_of(content, folder, config)
    folder.save(content, result)
    if not model.interrupted_:
        folder.checkpoint.unlink(missing_ok=True)
    if json_:
        typer.echo(json.dumps(result, indent=1))
    else:
        print_result(result, folder)
    if model.interrupted_:
        again = shlex.quote(str(folder.path))
        typer.echo(f"stopped after {result['steps']} of {steps} steps: go on with orbitgp learn --resume {again}", err=True)
        raise typer.Exit(INTERRUPTED)
