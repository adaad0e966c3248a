"""``orbitgp learn``: train a model, and keep it with a report in a run folder."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.begin import begin, stoppable
from orbitgp.cli.configuration import estimator_settings, orbit_for, orbit_text
from orbitgp.cli.errors import INTERRUPTED, print_errors
from orbitgp.cli.estimate import print_estimate
from orbitgp.cli.options import expand_options
from orbitgp.cli.processes import among_processes, leave, own_rows, rank
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import print_result, report_content, result_of
from orbitgp.cli.run_folder import RunFolder

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data
    from orbitgp.inference.evidence import Evidence

Orbit = Annotated[
    str | None,
    typer.Option("--orbit", "-o", metavar="ORBIT", help=arguments.ORBIT_HELP, autocompletion=arguments.complete_orbit),
]
Baseline = Annotated[
    bool, typer.Option("--baseline/--no-baseline", help="Train without invariance too, to say what it is worth.")
]


@expand_options
@print_errors
@among_processes
def learn(
    options: DataOptions,
    settings: TrainingSettings,
    orbit: Orbit = None,
    out: arguments.Out = None,
    baseline: Baseline = True,
    resume: arguments.Resume = None,
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
    orbits = [] if orbit is None else [orbit]
    folder, config, data = begin("learn", options, settings, orbits, {"baseline": baseline}, out, resume, quiet)
    with stoppable(folder):
        _train(folder, config, data, json_, quiet)


def _train(folder: RunFolder, config: dict[str, Any], data: Data, json_: bool, quiet: bool) -> None:
    import torch

    from orbitgp.orbits import Identity
    from orbitgp.report.words import is_certain

    torch.set_num_threads(config["threads"])
    orbit = orbit_for(orbit_text(config, config["orbit"]), data)
    start = orbit.describe()
    units = {name: quantity.unit for name, quantity in start.quantities.items()}
    wants_plain = bool(config["asked"].get("baseline")) and not isinstance(orbit, Identity)
    print_estimate(data, config, [orbit, *([Identity()] if wants_plain else [])], quiet)
    budget = config["settings"]["max_steps"]
    with Progress(2 if wants_plain else 1, budget, units, quiet=quiet) as progress, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fit was stopped|Ctrl-C came")
        model = _fitted(orbit, folder, config, data, progress)
        plain = _plain_evidence(folder, config, data, progress) if wants_plain and not model.interrupted_ else None
    if not leave():
        return
    if not quiet:
        typer.echo("writing the report …", err=True)
    certain = plain is None or is_certain(model.evidence_, plain)
    content = report_content(data, model, start, config, None if plain is None else plain.value, certain)
    result = result_of(content, folder, config)
    # Without its baseline a run is not finished, though its model is.
    stopped = model.interrupted_ or (wants_plain and plain is None)
    result["interrupted"] = stopped
    folder.save(content, result)
    if not stopped:
        folder.checkpoint.unlink(missing_ok=True)
    if json_:
        typer.echo(json.dumps(result, indent=1))
    else:
        print_result(result, folder, config)
    if stopped:
        of_all = "" if budget is None else f" of {budget:,}"
        of_model = f"after {result['steps']:,}{of_all} steps"
        when = of_model if model.interrupted_ else "before the end of the model without invariance"
        typer.echo(f"stopped {when}: go on with {folder.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED)


def _estimator(orbit: Any, config: dict[str, Any]) -> Any:
    """The estimator of this task, with the settings of the run."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor

    estimator = InvariantGPClassifier if config["task"] == "classification" else InvariantGPRegressor
    return estimator(orbit, **estimator_settings(config))


def _fitted(orbit: Any, folder: RunFolder, config: dict[str, Any], data: Data, progress: Progress) -> Any:
    """The fitted model; an earlier part of the run is gone on with."""
    progress.begin_at(config["orbit"], folder.steps_done())
    model = _estimator(orbit, config).fit(
        own_rows(data.x_train),
        own_rows(data.y_train),
        callback=partial(progress.record, config["orbit"]),
        checkpoint=folder.checkpoint,
        checkpoint_every=30.0,
        resume=True,
    )
    if config["settings"].get("ard") == "auto" and not model.interrupted_:
        return _better_with_ard(model, orbit, config, data, progress)
    return model


def _better_with_ard(model: Any, orbit: Any, config: dict[str, Any], data: Data, progress: Progress) -> Any:
    """The model with a lengthscale for each column, if its evidence is better by more than next to nothing."""
    from orbitgp.report.support import nats_needed
    from orbitgp.report.words import nats

    other = _estimator(orbit, {**config, "settings": {**config["settings"], "ard": "yes"}})
    watch = partial(progress.record, "a lengthscale a column")
    other.fit(own_rows(data.x_train), own_rows(data.y_train), callback=watch)
    gain = other.evidence_.value - model.evidence_.value
    better = gain > nats_needed(0) and not other.interrupted_
    config["settings"]["ard"] = "yes" if better else "no"
    config["settings_reason"] = f"A lengthscale for each column is {'' if better else 'not '}used: {nats(gain, sign=True)}."
    return other if better else model


def _plain_evidence(folder: RunFolder, config: dict[str, Any], data: Data, progress: Progress) -> Evidence | None:
    """The evidence of the model without invariance, which an earlier part of the run may have trained; None if stopped."""
    from orbitgp.inference.evidence import Evidence

    if folder.baseline.is_file():
        return Evidence(**folder.read_json(folder.baseline, Evidence))
    model = _estimator(None, config)
    model.fit(own_rows(data.x_train), own_rows(data.y_train), callback=partial(progress.record, "no invariance"))
    if model.interrupted_:
        return None
    if rank() == 0:
        with suppress(OSError):  # a full disk: the model is worth more, and is still to be written
            folder.write_json(folder.baseline, asdict(model.evidence_))
    return model.evidence_
