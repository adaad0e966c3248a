"""``orbitgp compare``: train several models, and say which the evidence prefers."""

from __future__ import annotations

import json
import shutil
import time
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, OutputOptions, TrainingSettings
from orbitgp.cli.begin import begin, stoppable
from orbitgp.cli.models import estimator_for, estimator_settings, tell_estimate
from orbitgp.cli.results import finish, print_next
from orbitgp.cli.run import Run, orbit_for

if TYPE_CHECKING:
    from orbitgp.comparison import Comparison

_ORBITS_HELP = (
    f"{arguments.ORBIT_HELP} Give it once for each orbit; by default none, rotation and affine for images, none, "
    "timeshift, timewarp and gain\\*offset for signals, none and exchanges and signs of columns that allow it for "
    "tables."
)
_REFINE_HELP = (
    "How long to go on with more inducing points or steps where the best orbits cannot be told apart. By default three "
    "times what the first models took."
)
_JOBS_HELP = "Models to train at a time; by default one for each core."


def compare(
    options: DataOptions,
    settings: TrainingSettings,
    output: OutputOptions,
    orbit: Annotated[list[str] | None, arguments.orbit_option(help=_ORBITS_HELP)] = None,
    refine_seconds: Annotated[float | None, Option(min=0.0, metavar="SECONDS", help=_REFINE_HELP)] = None,
    jobs: Annotated[int | None, Option("--jobs", "-j", min=1, metavar="N", help=_JOBS_HELP)] = None,
) -> None:
    """Which invariance do the data support?

    Trains a model for each orbit under the same budget, and ranks them by the marginal likelihood, which lies in an
    interval for each. Where the intervals of the best overlap, these are trained again with more inducing points or
    steps, or exactly. If they still overlap, it says "cannot tell", and what it would take. The best model is kept in a
    run folder with a report.

    Ctrl-C keeps the models that are done; --resume goes on.

    Examples:

        orbitgp compare
        orbitgp compare mnist --max-data 3000 -o none -o affine -o "affine*deformation"
        orbitgp compare signals.csv --signal --interval 0.01s
    """
    run = begin("compare", options, settings, output, orbit or [], {"refine_seconds": refine_seconds})
    with stoppable(run):
        ranking, result = train_and_rank(run, jobs)
    if run.json:
        typer.echo(json.dumps(result, indent=1))
        return
    typer.echo(str(ranking))
    if errors := result["comparison"]["test"]:
        typer.echo("\nOn the test set: " + "; ".join(f"{name}: {said}" for name, said in errors.items()) + ".")
    typer.echo(f"\n{ranking.best}: {result['summary']}\n")
    print_next(run)


def train_and_rank(run: Run, jobs: int | None) -> tuple[Comparison, dict[str, Any]]:
    """The ranking of the orbits of a run, and the content of its result.json; the files of the run are written."""
    import joblib
    import torch

    from orbitgp import comparison
    from orbitgp.comparison.compare import OneBar, named_orbits, orbit_name
    from orbitgp.orbits import Identity
    from orbitgp.training.progress import Progress

    config, data = run.config, run.data
    on_cpu = torch.device(config["settings"]["device"]).type == "cpu"  # a model for each core or GPU
    workers = jobs or (joblib.effective_n_jobs(-1) if on_cpu else max(1, torch.cuda.device_count()))
    made = {orbit_name(text): orbit_for(config, text, data) for text in config["orbits"]}
    named = named_orbits(made, data.input_shape)
    steps = config["settings"]["max_steps"]
    common = {"X": data.x, "y": data.y, "task": config["task"], "n_jobs": workers, "keep": run.models}
    common |= {"refine_seconds": config["asked"].get("refine_seconds"), **estimator_settings(config)}
    if limit := run.model_seconds():
        left = limit - (time.perf_counter() - run.begun)
        if left < 4 * run.read_seconds:  # workers take as long to begin as reading did, and longer where others work
            workers = common["n_jobs"] = 1
        left -= run.read_seconds * (workers > 1)
        common["max_seconds"] = max(left, 0.2 * limit) / ceil(len(named) / workers)
        common["refine_seconds"] = common["refine_seconds"] or 0.0
    at_a_time, of_steps = f", {workers} at a time" * (workers > 1), "" if steps is None else f" of {steps} steps"
    planned = f"{len(named)} models{of_steps}{at_a_time}, then more where they decide"
    run.say(f"{data.name}: {', '.join(config['orbits'])}; {planned}")
    starts = {name: start.describe() for name, start in named.items()}
    units = {name: quantity.unit for start in starts.values() for name, quantity in start.quantities.items()}
    in_order = sorted(named, key=lambda name: isinstance(named[name], Identity))  # as they are trained
    models = [estimator_for(config, named[name], max_seconds=common["max_seconds"]) for name in in_order]
    planned_seconds = tell_estimate(run.say, data, models, workers)
    with Progress(planned_seconds, units, lines=True, show=not run.quiet) as bar:
        ranking = comparison.compare(orbits=named, watch=OneBar(bar, in_order), **common)
    model, config["orbit"] = ranking.models[ranking.best], ranking.best
    behind = None if ranking.plain is None else ranking.against.get(ranking.plain)
    plain = None if behind is None else model.evidence_.value - behind.nats
    certain = ranking.plain not in ranking.tied
    result = finish(run, model, starts[ranking.best], plain, certain, comparison=ranking)
    shutil.rmtree(run.models, ignore_errors=True)
    return ranking, result
