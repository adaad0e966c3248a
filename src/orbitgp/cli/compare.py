"""``orbitgp compare``: train several models, and say which the evidence prefers."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from orbitgp.cli import arguments
from orbitgp.cli.arguments import DataOptions, TrainingSettings
from orbitgp.cli.cluster import cluster
from orbitgp.cli.configuration import check, configuration, estimator_settings, input_shape
from orbitgp.cli.errors import print_errors
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import print_next, print_notes, report_content, result_of
from orbitgp.cli.run_folder import RunFolder
from orbitgp.saving.atomic import write_json

Orbits = Annotated[
    list[str] | None,
    typer.Option(
        "--orbit",
        "-o",
        metavar="ORBIT",
        help=f"{arguments.ORBIT_HELP} Give it once for each orbit; by default none, rotation and affine for images, "
        "none and noise for tables.",
        autocompletion=arguments.complete_orbit,
    ),
]
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Restarts of each: differences are taken within a restart.")]
CheckInducing = Annotated[
    bool, typer.Option(help="Train each once more with twice the inducing points, to see whether the order holds.")
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="QUANTITY",
        help="Also show the bound over this quantity (degrees, scale_x, …) held at several values.",
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
    seeds: Seeds = 2,
    check_inducing: CheckInducing = True,
    profile: ProfileOption = None,
    profile_values: ProfileValues = None,
    jobs: Jobs = None,
    backend: Backend = None,
    scheduler: Scheduler = None,
    out: arguments.Out = None,
    json_: arguments.Json = False,
    quiet: arguments.Quiet = False,
) -> None:
    """Which invariance do the data support?

    Trains a model for each orbit under the same budget, from several seeds, and ranks them by the bound on the marginal
    likelihood. Says "cannot tell" where restarts differ by as much, where a run has not converged, or where more inducing
    points would change the order. The best model is kept in a run folder with a report.

    Examples:

        orbitgp compare
        orbitgp compare mnist --max-data 3000 -o none -o affine -o "affine*deformation"
        orbitgp compare --orbit none --orbit rotation --profile degrees
        orbitgp compare mnist --backend dask --scheduler tcp://10.0.0.1:8786
    """
    import joblib
    import torch

    from orbitgp import comparison
    from orbitgp.comparison.compare import named_orbits
    from orbitgp.comparison.profile import grid

    data = options.load(settings.seed)
    shape = input_shape(data)
    orbits = list(dict.fromkeys(orbit or (("none", "rotation", "affine") if data.has_images else ("none", "noise"))))
    extra = ["--seeds", str(seeds), *([] if check_inducing else ["--no-check-inducing"])]
    extra += [] if profile is None else ["--profile", profile]
    extra += [] if profile_values is None else ["--profile-values", profile_values]
    config = configuration("compare", options, settings, data, orbits, *extra)
    check(config, data)
    named = named_orbits(orbits, shape)
    profiled = None if profile is None else _profiled(orbits, profile)
    values = _values(profile_values)
    folder = RunFolder.create(out, options.data, "compare")
    with folder.removed_if_empty(), cluster(backend, scheduler):
        print_notes(data, config, quiet)
        on_cpu = torch.device(settings.device).type == "cpu"
        workers = jobs or (joblib.effective_n_jobs(-1) if backend or on_cpu else max(1, torch.cuda.device_count()))
        common = {"X": data.x_train, "y": data.y_train, "task": config["task"], "n_jobs": workers, **estimator_settings(config)}
        models, steps = len(orbits) * (seeds + check_inducing), settings.max_steps
        if not quiet:
            at_a_time = f", {workers} at a time" if workers > 1 else ""
            of_steps = "" if steps is None else f" of {steps} steps"
            typer.echo(f"{data.name}: {', '.join(orbits)}; {models} models{of_steps} at most{at_a_time}", err=True)
        starts = {name: start.describe() for name, start in named.items()}
        units = {name: quantity.unit for start in starts.values() for name, quantity in start.quantities.items()}
        with Progress(models, steps, units, live=workers == 1, quiet=quiet) as progress:
            ranking = comparison.compare(
                orbits=named, seeds=seeds, check_inducing=check_inducing, watch=progress.watch, **common
            )
        curve = None
        if profiled is not None and profile is not None:
            chosen = values or grid(profiled, profile, shape)
            with Progress(len(chosen), steps, live=workers == 1, quiet=quiet) as progress:
                curve = comparison.profile(orbit=profiled, quantity=profile, values=chosen, watch=progress.watch, **common)
    model = ranking.models[ranking.best]
    config["orbit"] = ranking.best
    # The evidence without invariance, as far below the best model's as it was on average over the seeds.
    over = ranking.over_plain()
    plain = None if over is None else model.evidence_.value - over
    content = report_content(data, model, starts[ranking.best], config, plain, ranking, curve)
    result = result_of(content, folder, config)
    write_json(folder.config, config)
    folder.save(content, result)
    if json_:
        typer.echo(json.dumps(result, indent=1))
        return
    typer.echo(str(ranking))
    if curve is not None:
        typer.echo(f"\n{curve}")
    typer.echo(f"\n{ranking.best}: {result['summary']}\n")
    print_next(folder)


def _profiled(orbits: list[str], quantity: str) -> str:
    """The first orbit that has this quantity."""
    from orbitgp.orbits.parse import quantity_names

    known: list[str] = []
    for text in orbits:
        names = quantity_names(text)
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
