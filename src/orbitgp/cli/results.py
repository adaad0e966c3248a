"""The result of a run: for scripts (result.json), for people (the report), and in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.own import named_again
from orbitgp.cli.run_folder import RunFolder

if TYPE_CHECKING:
    from orbitgp.cli.arguments import DataOptions
    from orbitgp.comparison import Comparison, Profile
    from orbitgp.datasets.files import Data
    from orbitgp.inference.cost import Workload
    from orbitgp.orbits.description import Description
    from orbitgp.report.page import Content


_LONG = 20.0  # seconds, above which a person is told beforehand
_OVERHEAD = 2.5  # seconds of a fit that do not depend on the size of the data
_FEWEST = 50  # data that a person is told to train on
_VALUES, _SIDE = 2048, 32  # images of more values may be made smaller, to this side
_STEPS = 30  # of a fit without an orbit
_LAST_STEPS = 20  # with the most draws


def report_content(
    data: Data,
    model: Any,
    start: Description,
    config: dict[str, Any],
    plain: float | None = None,
    certain: bool = True,
    comparison: Comparison | None = None,
    profile: Profile | None = None,
) -> Content:
    """The content of the report."""
    from orbitgp.report.page import Content
    from orbitgp.report.provenance import provenance

    made = provenance(config["settings"].get("device", "cpu"))
    versions = {**made["versions"], **{name: str(value) for name, value in made["hardware"].items()}}
    return Content(
        title=data.name,
        model=model,
        x=data.x_train,
        y=data.y_train,
        start=start,
        test=None if data.x_test is None else (data.x_test, data.y_test),
        names=data.rows_train,
        test_names=data.rows_test,
        target=data.read_options.target or "y",
        inverted=data.read_options.invert,
        columns=data.read_options.features,
        scales=data.read_options.scales or (),
        plain=plain,
        certain=certain,
        comparison=comparison,
        profile=profile,
        command=config["again"],
        settings=_listed_settings(data, model, config),
        versions=versions,
        notes=[
            *data.notes,
            *([] if not model.interrupted_ else ["The run was stopped early: this is the model so far."]),
        ],
        remarks=[*filter(None, [config.get("settings_reason")]), *in_units_of_columns(data, model)],
    )


def _listed_settings(data: Data, model: Any, config: dict[str, Any]) -> dict[str, str]:
    """The settings that the report lists."""
    from orbitgp.report.words import seen_by_g

    settings = config["settings"]
    listed = {
        "Data": name_and_source(data),
        "Inputs": f"{len(data.x_train):,} of shape {' × '.join(str(n) for n in model.input_shape_)}",
        "Task": config["task_reason"],
        "Orbit": config["orbit"],
        "Likelihood": type(model.likelihood_).__name__,
        "Kernel": _kernel(model),
        "Feature map": seen_by_g(model),
        **_inference(model),
        "Seed": str(model.random_state),
        "Device": str(settings["device"]),
    }
    return {name: value for name, value in listed.items() if value}


def name_and_source(data: Data) -> str:
    """The name of the data, and where they are from, if that is another word."""
    return data.name if data.source == data.name else f"{data.name} ({data.source})"


def _inference(model: Any) -> dict[str, str]:
    """How the posterior was found."""
    steps, samples = model.history_[-1]["step"], model.evidence_.num_samples
    if model.inference_ == "exact":
        count, learned = model.evidence_.num_data, model.evidence_.learned_from
        some = f"; learned on {learned:,} of {count:,} data, conditioned on all" if learned < count else ""
        return {
            "Inference": f"exact, without inducing points{some}",
            "Orbit samples": "all elements of the orbit" if samples is None else f"{samples}, the same for every datum",
            "Steps": f"{steps:,} evaluations of the evidence",
        }
    return {"Inference": "sparse", "Inducing points": f"{len(model.model_.inducing):,}", "Steps": f"{steps:,}"}


def _kernel(model: Any) -> str:
    kernel = model.kernel_ if model.feature_map is None else model.kernel_.base_kernel
    names = [type(part).__name__ for part in kernel.modules() if type(part).__name__.endswith("Kernel")]
    return " of ".join(dict.fromkeys(names))


def in_units_of_columns(data: Data, model: Any) -> list[str]:
    """What noise on standardised columns is in their own units."""
    from orbitgp.orbits.description import number

    noise = model.orbit_.describe().quantities.get("scale")
    options = data.read_options
    if noise is None or noise.unit or not isinstance(noise.value, float) or options.scales is None:
        return []
    scaled = zip(options.features, options.scales, strict=True)
    columns = [(name, unit) for name, (shift, unit) in scaled if (shift, unit) != (0.0, 1.0)]  # those of words are as they are
    if not columns:
        return []
    shown = [f"{number(noise.value * unit)} in {name}" for name, unit in columns[:6]] + ["…"] * (len(columns) > 6)
    return [f"Columns are standardised. In their own units, the noise has a standard deviation of {', '.join(shown)}."]


def result_of(content: Content, folder: RunFolder, config: dict[str, Any]) -> dict[str, Any]:
    """The content of ``result.json``."""
    from orbitgp.report.words import seen_by_g

    model = content.model
    learned = model.describe()
    evidence = model.evidence_
    scores = content.scores
    remarks = [*content.remarks, *([] if scores is None else scores.notes)]
    result: dict[str, Any] = {
        "summary": content.finding.text,
        "supported": content.finding.supported,
        "data": content.title,
        "notes": [*content.notes, *remarks],
        "remarks": remarks,
        "task": config["task_reason"],
        "orbit": config["orbit"],
        "learned": learned.to_dict(),
        "units": {name: quantity.unit for name, quantity in learned.quantities.items()},
        "plausible": model.plausible_,
        "feature_map": seen_by_g(model),
        "inference": model.inference_,
        "evidence": evidence.value,
        "evidence_stderr": evidence.stderr,
        "evidence_exact": evidence.exact,
        "evidence_without_invariance": content.plain,
        "num_data": evidence.num_data,
        "num_learned": evidence.learned_from,
        "steps": model.history_[-1]["step"],
        "seconds": model.history_[-1]["seconds"],
        "interrupted": bool(model.interrupted_),
        "test": None if scores is None else {"count": scores.count, **scores.plain},
        "folder": str(folder.path),
        "again": config["again"],
    }
    if content.comparison is not None:
        result["comparison"] = content.comparison.to_dict()
    if content.profile is not None:
        result["profile"] = asdict(content.profile)
    return result


def test_errors(data: Data, models: dict[str, Any]) -> dict[str, str]:
    """The error of each model on held-out data, in words; nothing without such data. It has no part in the verdict."""
    from orbitgp.report.cases import score

    if data.x_test is None or data.y_test is None:
        return {}
    scores = {name: score(model, data.x_test, data.y_test, cases=0) for name, model in models.items()}
    return {name: " ".join(found.headline) for name, found in scores.items()}


def print_reading(options: DataOptions, resume: Path | None, quiet: bool) -> None:
    """Print something at once: loading the libraries alone takes seconds."""
    if not quiet:
        typer.echo(f"reading {options.data if resume is None else resume} …", err=True)


def print_estimate(data: Data, config: dict[str, Any], orbits: Sequence[Any], quiet: bool, workers: int = 1) -> None:
    """Print how long exact training will take, if that is long, and what would take half of that or less."""
    from orbitgp.estimators.defaults import NUM_INDUCING
    from orbitgp.estimators.validation import usable_device
    from orbitgp.inference.cost import LEAST_SAMPLES, Workload
    from orbitgp.training.options import TrainingOptions

    settings, device = config["settings"], usable_device(config["settings"]["device"])
    if quiet or settings["inference"] == "sparse" or settings["num_inducing"] or settings["batch_size"]:
        return

    def work(orbit: Any, dim: int) -> Workload:
        return Workload(getattr(orbit, "size", settings["num_samples"] or LEAST_SAMPLES), dim, device)

    def together(rows: int, dim: int) -> float:
        return sum(_seconds(work(orbit, dim), rows, orbit, settings) for orbit in orbits) / workers

    rows, dim = len(data.x_train), int(data.x_train[0].size)
    most = max(work(orbit, dim).learning(rows).seconds for orbit in orbits)
    seconds = together(rows, dim)
    may_be_sparse = settings["inference"] == "auto" and rows > NUM_INDUCING
    if (most > TrainingOptions().exact_seconds and may_be_sparse) or seconds < _LONG:
        return
    offers = {f"--max-data {rows // 2}": together(rows // 2, dim)} if rows // 2 >= _FEWEST else {}
    if data.read_options.colour and dim > _VALUES:
        offers[f"--resize {_SIDE}x{_SIDE}"] = together(rows, _SIDE**2 * (3 if data.read_options.colour == "RGB" else 1))
    quicker = [f"{option} would take {_duration(less)}" for option, less in offers.items() if less <= seconds / 2]
    typer.echo("; ".join([f"this will take about {_duration(seconds)} on a free machine", *quicker]), err=True)


def _seconds(work: Workload, rows: int, orbit: Any, settings: dict[str, Any]) -> float:
    """What a fit takes on one core: starts, a climb, and for orbits that learn several quantities one with the most draws.

    Fits of 100 and 300 digits, of images of 16x16 pixels and of a table, with no orbit, noise, rotations and affine maps, took
    0.7 to 1.7 times as long.
    """
    from orbitgp.training.options import TrainingOptions

    quantities = sum(not name.endswith("elements") for name in orbit.describe())
    seconds = _OVERHEAD * (1 + 2 * quantities) + 2 * work.learning(rows).seconds
    if quantities > 1:
        draws = settings["num_samples"] or work.most_samples(rows, rows, TrainingOptions().exact_seconds)
        seconds += _LAST_STEPS * replace(work, samples=draws).evaluation(rows).seconds
    most = settings["max_steps"] or inf
    return float(min(seconds * min(1.0, most / (_STEPS * (1 + 2 * quantities))), settings["max_seconds"] or inf))


def _duration(seconds: float) -> str:
    """As in "40 s", "4 minutes", "2.5 hours"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def print_notes(data: Data, config: dict[str, Any], quiet: bool) -> None:
    """Print what will be learned, and what a person should know about the data before training on them."""
    if not quiet:
        typer.echo(f"{data.name}: {config['task_reason']}", err=True)
    for note in data.notes:
        typer.echo(f"note: {note}", err=True)


def print_result(result: dict[str, Any], folder: RunFolder) -> None:
    """Print the sentence, a few numbers, and what to do next."""
    from orbitgp.inference.evidence import rounded
    from orbitgp.report.words import why_not_plausible

    typer.echo(result["summary"])
    for remark in result.get("remarks", []):
        typer.echo(remark)
    typer.echo("")
    print_line("task", result["task"])
    if result.get("feature_map"):
        print_line("g sees", result["feature_map"])
    error = f" ± {rounded(result['evidence_stderr'], 1)}" if result["evidence_stderr"] else ""
    count, learned = result["num_data"], result.get("num_learned", result["num_data"])
    data = f"{count:,} data" if learned == count else f"learned on {learned:,} of {count:,} data"
    above = "" if result.get("evidence_exact", True) else "≥ "
    print_line("evidence", f"{above}{result['evidence']:,.1f}{error} nats ({data})")
    if why := why_not_plausible(result.get("inference"), result["learned"], result.get("plausible", {})):
        print_line("plausible", why)
    if result["evidence_without_invariance"] is not None:
        print_line("no invariance", f"{above}{result['evidence_without_invariance']:,.1f} nats")
    test = result["test"]
    if test and "error" in test:
        print_line("test error", f"{100 * test['error']:.2f} % of {test['count']:,}")
    elif test:
        print_line("test RMSE", f"{test['rmse']:.4g} over {test['count']:,}")
    print_line("training", f"{result['steps']:,} steps, {result['seconds']:,.{0 if result['seconds'] >= 10 else 1}f} s")
    typer.echo("")
    print_next(folder)


def print_next(folder: RunFolder) -> None:
    """Print where things are, and what to type next."""
    run = shlex.quote(str(folder.path))
    print_line("report", str(folder.report))
    print_line("model", str(folder.model))
    print_line("open the report", f"orbitgp show {run} --open")
    config = folder.read_config()
    print_line("predict", f"orbitgp predict {run} INPUT{named_again([config['orbit']], config['settings'])}")
    tried = config["settings"]["ard"] != "no" or config.get("settings_reason")
    if config["command"] == "learn" and config["read_options"]["scales"] and not tried:
        print_line("try also", "--ard auto: a lengthscale for each column, if the evidence prefers it")


def print_line(name: str, value: str) -> None:
    """Print a name and its value, in two columns."""
    typer.echo(f"  {name:<17}{value}")
