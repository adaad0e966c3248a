"""``orbitgp learn``: train a model, and keep it with a report in a run folder."""

from __future__ import annotations

import time
import warnings
from typing import Annotated

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, OutputOptions, TrainingSettings
from orbitgp.cli.begin import INTERRUPTED, begin, stoppable
from orbitgp.cli.models import estimator_for, tell_estimate
from orbitgp.cli.processes import leave, own_rows, process_group
from orbitgp.cli.results import finish, print_result
from orbitgp.cli.run import Run, orbit_for

_BASELINE_HELP = "Train without invariance too, to say what it is worth."


def learn(
    options: DataOptions,
    settings: TrainingSettings,
    output: OutputOptions,
    orbit: Annotated[str | None, arguments.orbit_option(help=arguments.ORBIT_HELP)] = None,
    baseline: Annotated[bool, typer.Option("--baseline/--no-baseline", help=_BASELINE_HELP)] = True,
) -> None:
    """Learn an invariance of the data: how far it goes, and what it is worth.

    Trains a Gaussian process that averages over an orbit of every input, and learns the size of the orbit from the
    marginal likelihood. Ends with a sentence such as "insensitive to rotations within ±17°; evidence +41,200 nats over
    no invariance", and writes a folder with the model, its history and a report to open in a browser.

    Ctrl-C stops cleanly and keeps the model so far; --resume goes on.

    Examples:

        orbitgp learn
        orbitgp learn mnist --orbit affine --max-data 5000
        orbitgp learn measured.csv --target yield --orbit "swap(0, 1)"
        torchrun --nproc-per-node=2 -m orbitgp learn mnist --orbit affine
    """
    orbits = [] if orbit is None else [orbit]
    with process_group():
        run = begin("learn", options, settings, output, orbits, {"baseline": baseline})
        with stoppable(run):
            _train(run)


def _train(run: Run) -> None:
    import torch

    from orbitgp.inference.processes import broadcast
    from orbitgp.orbits import Identity
    from orbitgp.report.finding import is_certain
    from orbitgp.training.progress import Progress

    config, data, budget = run.config, run.data, run.config["settings"]["max_steps"]
    torch.set_num_threads(config["threads"])
    orbit = orbit_for(config, config["orbit"], data)
    start = orbit.describe()
    units = {name: quantity.unit for name, quantity in start.quantities.items()}
    wants_plain = bool(config["asked"].get("baseline")) and not isinstance(orbit, Identity)
    limit = run.model_seconds()
    shares = {orbit: 7 / 9, None: 2 / 9} if wants_plain else {orbit: 1.0}
    models = [estimator_for(config, one, max_seconds=limit and share * limit) for one, share in shares.items()]
    seconds = tell_estimate(run.say, data, models)
    if models[0].ard == "auto":  # one fit after the other
        seconds = [seconds[0] / 2, seconds[0] / 2, *(one / 2 for one in seconds[1:])]
    with Progress(seconds, units, lines=True, show=not run.quiet) as bar, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fit was stopped")
        model, rows = models[0], (own_rows(data.x), own_rows(data.y))
        tell = bar.teller(config["orbit"], run.begun)  # data and estimate, too, take time
        model.fit(*rows, callback=tell, checkpoint=run.checkpoint, checkpoint_every=30.0, resume=True)
        left = limit and broadcast(limit - (time.perf_counter() - run.begun))
        if wants_plain and left is not None and left <= 0:
            run.say("there is no time left for the model without invariance: raise --max-seconds")
            wants_plain = False
        plain = None
        if wants_plain and not model.interrupted_:
            other = estimator_for(config, None, ard=model.ard_, max_seconds=left)
            other.fit(*rows, callback=bar.teller("no invariance"))
            plain = None if other.interrupted_ else other.evidence_
    if not leave():
        return
    certain = plain is None or is_certain(model.evidence_, plain)
    # Without its baseline a run is not finished, though its model is.
    stopped = model.interrupted_ or (wants_plain and plain is None)
    result = finish(run, model, start, None if plain is None else plain.value, certain, stopped)
    if not stopped:
        run.checkpoint.unlink(missing_ok=True)
    print_result(result, run)
    if stopped:
        of_all = "" if budget is None else f" of {budget:,}"
        after = f"after {result['steps']:,}{of_all} steps"
        when = after if model.interrupted_ else "before the end of the model without invariance"
        typer.echo(f"stopped {when}: go on with {run.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED)
