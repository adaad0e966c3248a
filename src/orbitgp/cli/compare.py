"""``orbitgp compare``: train several, and say which the evidence prefers."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from orbitgp.cli import arguments as o
from orbitgp.cli.errors import guarded
from orbitgp.cli.learn import Out, check, configuration, estimator_settings, features, write_config
from orbitgp.cli.progress import Progress
from orbitgp.cli.results import report_content, result_of, say_next
from orbitgp.cli.run_folder import Folder, save_run

_IMAGES = ("none", "rotation", "affine")
_VECTORS = ("none", "noise")

Orbits = Annotated[
    list[str] | None,
    typer.Option(
        "--orbit",
        "-o",
        metavar="ORBIT",
        help=f"{o.ORBIT_HELP} Once for each; by default none, rotation and affine for images, none and noise for tables.",
        autocompletion=o.complete_orbit,
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


@guarded
def compare(
    data: o.DataArgument = "digits",
    orbit: Orbits = None,
    seeds: Seeds = 2,
    check_inducing: CheckInducing = True,
    profile: ProfileOption = None,
    profile_values: ProfileValues = None,
    jobs: Jobs = None,
    out: Out = None,
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
    likelihood: o.Likelihood = "gaussian",  # for classes, too: of their likelihoods it is the cheapest, and exact
    feature_map: o.FeatureMap = "none",
    num_inducing: o.NumInducing = 128,
    num_samples: o.NumSamples = 16,
    max_steps: o.MaxSteps = 150,
    max_seconds: o.MaxSeconds = None,
    batch_size: o.BatchSize = 512,
    seed: o.Seed = 0,
    device: o.Device = "cpu",
    json_: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Which invariance do the data support?

    Trains a model for each orbit under the same budget, from several seeds, and ranks them by the bound on the marginal
    likelihood. Says "cannot tell" where restarts differ by as much, where a run has not converged, or where more inducing
    points would change the order. The best model is kept in a run folder with a report.

    Examples:

        orbitgp compare
        orbitgp compare mnist --max-data 3000 -o none -o affine -o "affine*deformation"
        orbitgp compare --orbit none --orbit rotation --profile degrees
    """
    import joblib
    import torch

    from orbitgp.comparison import compare as compare_orbits
    from orbitgp.comparison.compare import named_orbits
    from orbitgp.orbits.parse import make_orbit

    source = o.DataOptions(data, target, targets, test, test_fraction, max_data, image_shape, resize, invert, data_dir, seed)
    settings: dict[str, Any] = {
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
    images = loaded.x_train.ndim > 2 or loaded.reading.image_shape is not None
    orbits = list(dict.fromkeys(orbit or (_IMAGES if images else _VECTORS)))
    extra = ["--seeds", str(seeds), *([] if check_inducing else ["--no-check-inducing"])]
    extra += [] if profile is None else ["--profile", profile]
    extra += [] if profile_values is None else ["--profile-values", profile_values]
    config = configuration("compare", source, loaded, "|".join(orbits), task, settings, seed, *extra)
    check(config, loaded)
    shape = features(config, loaded)
    named_orbits(orbits, shape)  # complains if they are too few
    profiled = None if profile is None else _profiled(orbits, profile, shape)
    values = _values(profile_values)
    folder = Folder.new(out, data, "compare")
    with folder.whole_or_not_at_all():
        for note in loaded.notes:
            typer.echo(f"note: {note}", err=True)

        workers = jobs or (joblib.cpu_count() if torch.device(device).type == "cpu" else 1)
        common = {"n_jobs": workers, "random_state": seed, "task": config["task"], **estimator_settings(config)}
        models = len(orbits) * (seeds + check_inducing)
        if not quiet:
            at_a_time = f", {workers} at a time" if workers > 1 else ""
            typer.echo(f"{loaded.name}: {', '.join(orbits)}; {models} models of {max_steps} steps{at_a_time}", err=True)
        units = {n: q.unit for text in orbits for n, q in make_orbit(text, shape).describe().quantities.items()}
        with Progress(models * max_steps, units, quiet) as progress:
            result = compare_orbits(
                loaded.x_train,
                loaded.y_train,
                orbits,
                seeds=seeds,
                check_inducing=check_inducing,
                watch=progress.watch(max_steps),
                **common,
            )
        curve = None
        if profiled is not None and profile is not None:
            curve = _profile(loaded, profiled, profile, values, shape, max_steps, common, quiet)
    model = result.models[result.best]
    config["orbit"] = result.best
    content = report_content(
        loaded, model, make_orbit(result.best, shape).describe(), config, _plain(result, model), result, curve
    )
    outcome = result_of(content, folder, config)
    write_config(folder, {**config, "orbits": orbits})
    save_run(folder, content, outcome)
    if json_:
        typer.echo(json.dumps(outcome, indent=1))
        return
    typer.echo(str(result))
    if curve is not None:
        typer.echo(f"\n{curve}")
    typer.echo(f"\n{result.best}: {outcome['summary']}")
    typer.echo("")
    say_next(folder)


def _plain(result: Any, model: Any) -> float | None:
    """The evidence without invariance that the best model's is to be held against: less by the mean difference over seeds."""
    over = result.over_plain()
    return None if over is None else model.evidence_.value - over


def _profiled(orbits: list[str], quantity: str, shape: tuple[int, ...]) -> str:
    """The orbit whose quantity is asked for: the first that has it."""
    from orbitgp.orbits.parse import quantity_names

    for text in orbits:
        if quantity in quantity_names(text):
            return text
    there = sorted({name for text in orbits for name in quantity_names(text)})
    raise ValueError(f"no orbit here has a quantity {quantity!r} to profile: they have {', '.join(there) or 'none'}.")


def _values(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"write numbers with commas between them, not {text!r}.", param_hint="--profile-values"
        ) from None


def _profile(
    data: Any,
    orbit: str,
    quantity: str,
    values: list[float] | None,
    shape: tuple[int, ...],
    steps: int,
    common: Any,
    quiet: bool,
) -> Any:
    from orbitgp.comparison import profile
    from orbitgp.comparison.profile import grid

    chosen = grid(orbit, quantity, shape) if values is None else values
    with Progress(len(chosen) * steps, None, quiet) as progress:
        return profile(data.x_train, data.y_train, orbit, quantity, chosen, watch=progress.watch(steps), **common)
