"""``orbitgp compare``: train several models, and say which the evidence prefers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.cluster import cluster
from orbitgp.cli.configuration import (
    check,
    check_named_again,
    configuration,
    estimator_settings,
    input_shape,
    needed_space,
    orbit_for,
    orbit_text,
)
from orbitgp.cli.errors import INTERRUPTED, print_errors
from orbitgp.cli.own import is_own
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import print_estimate, print_next, print_notes, print_reading, report_content, result_of, test_errors
from orbitgp.cli.run_folder import RunFolder

if TYPE_CHECKING:
    from orbitgp.datasets.files import Data
    from orbitgp.orbits import Orbit

Orbits = Annotated[
    list[str] | None,
    typer.Option(
        "--orbit",
        "-o",
        metavar="ORBIT",
        help=f"{arguments.ORBIT_HELP} Give it once for each orbit; by default none, rotation and affine for images, "
        "none, timeshift, timewarp and gain\\*offset for signals, none and noise for tables.",
        autocompletion=arguments.complete_orbit,
    ),
]
RefineSeconds = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="How long to go on with more inducing points, steps or draws where the best orbits cannot be told apart. By "
        "default three times what the first models took.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="QUANTITY",
        help="Also show the evidence over this quantity (degrees, scale_x, …) held at several values.",
    ),
]
ProfileValues = Annotated[str | None, typer.Option(metavar="LIST", help="Values for --profile, as in 0,15,30,45.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, metavar="N", help="Models to train at a time. By default one for each core."),
]
Backend = Annotated[
    Literal["dask", "ray"] | None, typer.Option(help="Train on a cluster that runs, instead of this machine's cores.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Where the cluster is, as in tcp://10.0.0.1:8786 (Dask).")
]


@arguments.expand_options()
@print_errors
def compare(
    options: DataOptions,
    settings: TrainingSettings,
    orbit: Orbits = None,
    refine_seconds: RefineSeconds = None,
    profile: ProfileOption = None,
    profile_values: ProfileValues = None,
    jobs: Jobs = None,
    backend: Backend = None,
    scheduler: Scheduler = None,
    out: arguments.Out = None,
    resume: arguments.Resume = None,
    json_: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Which invariance do the data support?

    Trains a model for each orbit under the same budget, and ranks them by the marginal likelihood, which lies in an interval
    for each. Where the intervals of the best overlap, these are trained again with more inducing points, steps or draws, or
    exactly. If they still overlap, it says "cannot tell", and what it would take. The best model is kept in a run folder with
    a report.

    Ctrl-C keeps the models that are done; --resume goes on.

    Examples:

        orbitgp compare
        orbitgp compare mnist --max-data 3000 -o none -o affine -o "affine*deformation"
        orbitgp compare --orbit none --orbit rotation --profile degrees
        orbitgp compare signals.csv --signal --interval 0.01s
        orbitgp compare mnist --backend dask --scheduler tcp://10.0.0.1:8786
    """
    print_reading(options, resume, quiet)
    if resume is not None:
        folder, config = RunFolder.unfinished(resume, "compare")
        check_named_again(config, orbit or [], settings)
        data = DataOptions(**config["data"]).load(config["settings"]["seed"], config["orbits"])
    else:
        data = options.load(settings.seed, orbit or ())
        orbits = list(dict.fromkeys(orbit or _default_orbits(data)))
        extra = [] if refine_seconds is None else ["--refine-seconds", f"{refine_seconds:g}"]
        extra += [] if profile is None else ["--profile", profile]
        extra += [] if profile_values is None else ["--profile-values", profile_values]
        config = configuration("compare", options, settings, data, orbits, *extra)
        config["compare"] = {
            "refine_seconds": refine_seconds,
            "profile": profile,
            "values": _values(profile_values),
        }
        check(config, data)
        _check_orbits(config, data)
        folder = RunFolder.create(out, options.data, "compare")
        with folder.removed_if_empty():
            folder.check_space(len(orbits) * needed_space(data))
        folder.claim(config)
    try:
        with folder.removed_if_empty(), cluster(backend, scheduler):
            workers = _workers(jobs, backend, settings.device if resume is None else config["settings"]["device"])
            _compare(folder, config, data, workers, json_, quiet)
    except KeyboardInterrupt:
        if not folder.path.exists():
            raise
        done = len(list(folder.models.glob("*")))
        typer.echo(f"stopped; models that are done ({done}) are kept: go on with {folder.resume_command()}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _orbits(config: dict[str, Any], data: Data) -> dict[str, Orbit]:
    from orbitgp.comparison.compare import named_orbits

    return named_orbits(
        {text.replace(" ", ""): orbit_for(orbit_text(config, text), data) for text in config["orbits"]}, input_shape(data)
    )


def _check_orbits(config: dict[str, Any], data: Data) -> None:
    from orbitgp.orbits.parse import with_fixed

    _orbits(config, data)
    quantity, columns = config["compare"]["profile"], data.read_options.features
    if quantity is not None:
        profiled = orbit_text(config, _profiled(config["orbits"], quantity, columns))
        for value in config["compare"]["values"] or ():
            try:
                with_fixed(profiled, quantity, value, input_shape(data), columns)
            except ValueError as error:
                raise ValueError(f"--profile-values: {error}") from None


def _workers(jobs: int | None, backend: str | None, device: str) -> int:
    """How many models to train at a time: what was asked for, or one for each core, GPU or worker of a cluster."""
    import joblib
    import torch

    on_cpu = torch.device(device).type == "cpu"
    return jobs or (joblib.effective_n_jobs(-1) if backend or on_cpu else max(1, torch.cuda.device_count()))


def _compare(folder: RunFolder, config: dict[str, Any], data: Data, workers: int, json_: bool, quiet: bool) -> None:
    from orbitgp import comparison
    from orbitgp.comparison.profile import grid

    asked, shape, orbits = config["compare"], input_shape(data), config["orbits"]
    named = _orbits(config, data)
    print_notes(data, config, quiet)
    common = {
        "X": data.x_train,
        "y": data.y_train,
        "task": config["task"],
        "n_jobs": workers,
        "refine_seconds": asked["refine_seconds"],
        "keep": folder.models,
        **estimator_settings(config),
    }
    models, steps = len(orbits), config["settings"]["max_steps"]
    if not quiet:
        at_a_time = f", {workers} at a time" if workers > 1 else ""
        of_steps = "" if steps is None else f" of {steps} steps"
        typer.echo(
            f"{data.name}: {', '.join(orbits)}; {models} models{of_steps}{at_a_time}, then more where they decide", err=True
        )
    print_estimate(data, config, list(named.values()), quiet, workers)
    starts = {name: start.describe() for name, start in named.items()}
    units = {name: quantity.unit for start in starts.values() for name, quantity in start.quantities.items()}
    with Progress(models, steps, units, live=workers == 1, quiet=quiet) as progress:
        ranking = comparison.compare(orbits=named, watch=progress.watch, **common)
    curve = None
    if (profile := asked["profile"]) is not None:
        columns = data.read_options.features
        profiled = orbit_text(config, _profiled(orbits, profile, columns))
        chosen = asked["values"] or grid(profiled, profile, shape, columns)
        with Progress(len(chosen), steps, live=workers == 1, quiet=quiet) as progress:
            held = {"orbit": profiled, "quantity": profile, "values": chosen, "columns": columns}
            curve = comparison.profile(**held, watch=progress.watch, **common)
    if not quiet:
        typer.echo("writing the report …", err=True)
    model = ranking.models[ranking.best]
    config["orbit"] = ranking.best
    behind = None if ranking.plain is None else ranking.against.get(ranking.plain)
    plain = None if behind is None else model.evidence_.value - behind.nats
    certain = ranking.plain not in ranking.tied
    content = report_content(data, model, starts[ranking.best], config, plain, certain, ranking, curve)
    result = result_of(content, folder, config)
    errors = test_errors(data, {row.orbit: ranking.models[row.orbit] for row in ranking.rows})
    result["comparison"]["test"] = errors
    folder.write_json(folder.config, config)
    folder.save(content, result)
    shutil.rmtree(folder.models, ignore_errors=True)
    if json_:
        typer.echo(json.dumps(result, indent=1))
        return
    typer.echo(str(ranking))
    if errors:
        typer.echo("\nOn the test set: " + "; ".join(f"{name}: {said}" for name, said in errors.items()) + ".")
    if curve is not None:
        typer.echo(f"\n{curve}")
    typer.echo(f"\n{ranking.best}: {result['summary']}\n")
    print_next(folder)


def _default_orbits(data: Data) -> tuple[str, ...]:
    if data.has_signals:
        return "none", "timeshift", "timewarp", "gain*offset"
    return ("none", "rotation", "affine") if data.has_images else ("none", "noise")


def _profiled(orbits: list[str], quantity: str, columns: Sequence[str]) -> str:
    """The first orbit that has this quantity."""
    from orbitgp.orbits.parse import quantity_names

    known: list[str] = []
    for text in (orbit for orbit in orbits if not is_own(orbit)):
        names = quantity_names(text, columns)
        if quantity in names:
            return text
        known += names
    listed = ", ".join(sorted(set(known))) or "none"
    raise ValueError(f"no orbit here has a quantity {quantity!r} to profile: they have {listed}.")


def _values(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"write numbers as in 0,15,30, not {text!r}.", param_hint="--profile-values") from None
