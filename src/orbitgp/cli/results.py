"""The result of a run: for scripts (result.json), for people (the report), and in the terminal."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.own import named_again
from orbitgp.cli.run_folder import RunFolder

if TYPE_CHECKING:
    from orbitgp.comparison import Comparison, Profile
    from orbitgp.datasets.files import Data
    from orbitgp.orbits.description import Description
    from orbitgp.report.page import Content


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
    from orbitgp.report.provenance import model_settings, provenance
    from orbitgp.report.words import noise_in_units

    made, options = provenance(config["settings"]["device"]), data.read_options
    return Content(
        title=data.name,
        model=model,
        x=data.x_train,
        y=data.y_train,
        start=start,
        test=None if data.x_test is None else (data.x_test, data.y_test),
        names=data.rows_train,
        test_names=data.rows_test,
        target=options.target or "y",
        inverted=options.invert,
        columns=options.features,
        scales=options.scales or (),
        plain=plain,
        certain=certain,
        comparison=comparison,
        profile=profile,
        command=config["again"],
        settings={
            "Data": name_and_source(data),
            "Inputs": f"{len(data.x_train):,} of shape {' × '.join(str(n) for n in model.input_shape_)}",
            "Task": config["task_reason"],
            "Orbit": config["orbit"],
            **model_settings(model),
        },
        versions={**made["versions"], **{name: str(value) for name, value in made["hardware"].items()}},
        notes=[*data.notes, *["The run was stopped early: this is the model so far."] * model.interrupted_],
        remarks=[
            *filter(None, [config.get("settings_reason")]),
            *noise_in_units(model.orbit_.describe(), options.features, options.scales or ()),
        ],
    )


def name_and_source(data: Data) -> str:
    """The name of the data, and where they are from, if that is another word."""
    return data.name if data.source == data.name else f"{data.name} ({data.source})"


def result_of(content: Content, folder: RunFolder, config: dict[str, Any]) -> dict[str, Any]:
    """The content of ``result.json``."""
    from orbitgp.report.words import seen_by_g

    model, scores = content.model, content.scores
    learned, evidence, last = model.describe(), model.evidence_, model.history_[-1]
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
        "plausible": json.loads(json.dumps(model.plausible_), parse_constant=lambda _: None),  # JSON has no infinity
        "feature_map": seen_by_g(model),
        "inference": model.inference_,
        "evidence": evidence.value,
        "evidence_stderr": evidence.stderr,
        "evidence_is_bound": evidence.is_bound,
        "evidence_without_invariance": content.plain,
        "num_data": evidence.num_data,
        "num_learned": evidence.learned_from,
        "steps": last["step"],
        "seconds": last["seconds"],
        "interrupted": bool(model.interrupted_),
        "test": None if scores is None else {"count": scores.count, **scores.plain},
        "folder": str(folder.path),
        "again": config["again"],
    }
    if content.comparison is not None:
        result["comparison"] = content.comparison.to_dict()
    if content.profile is not None:
        result["profile"] = asdict(content.profile)
    return {**result, "lines": _lines(result)}


def _lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers of a result for the terminal, each with its name; without a text where it does not apply."""
    from orbitgp.inference.evidence import rounded
    from orbitgp.report.words import why_not_plausible

    error = f" ± {rounded(result['evidence_stderr'], 1)}" if result["evidence_stderr"] else ""
    count, learned, plain = result["num_data"], result["num_learned"], result["evidence_without_invariance"]
    data = f"{count:,} data" if learned == count else f"learned on {learned:,} of {count:,} data"
    above, seconds, test = "≥ " if result["evidence_is_bound"] else "", result["seconds"], result["test"] or {}
    lines = [
        ("task", result["task"]),
        ("g sees", result["feature_map"]),
        ("evidence", f"{above}{result['evidence']:,.1f}{error} nats ({data})"),
        ("plausible", why_not_plausible(result["inference"], result["learned"], result["plausible"])),
        ("no invariance", "" if plain is None else f"{above}{plain:,.1f} nats"),
        ("test error", f"{100 * test['error']:.2f} % of {test['count']:,}" if "error" in test else ""),
        ("test RMSE", f"{test['rmse']:.4g} over {test['count']:,}" if "rmse" in test else ""),
        ("training", f"{result['steps']:,} steps, {seconds:,.{0 if seconds >= 10 else 1}f} s"),
    ]
    return [(name, text) for name, text in lines if text]


def held_out_errors(data: Data, models: dict[str, Any]) -> dict[str, str]:
    """The error of each model on held-out data, in words; nothing without such data. It has no part in the verdict."""
    from orbitgp.report.cases import score

    if data.x_test is None or data.y_test is None:
        return {}
    scores = {name: score(model, data.x_test, data.y_test, cases=0) for name, model in models.items()}
    return {name: " ".join(found.headline) for name, found in scores.items()}


def print_result(result: dict[str, Any], folder: RunFolder, config: dict[str, Any]) -> None:
    """Print the sentence, a few numbers, and what to do next."""
    for sentence in (result["summary"], *result["remarks"], ""):
        typer.echo(sentence)
    for name, text in result["lines"]:
        print_line(name, text)
    typer.echo("")
    print_next(folder, config)


def print_next(folder: RunFolder, config: dict[str, Any]) -> None:
    """Print where things are, and what to type next."""
    run = shlex.quote(str(folder.path))
    print_line("report", str(folder.report))
    print_line("model", str(folder.model))
    print_line("open the report", f"orbitgp show {run} --open")
    print_line("predict", f"orbitgp predict {run} INPUT{named_again([config['orbit']], config['settings'])}")
    tried = config["settings"]["ard"] != "no" or config.get("settings_reason")
    if config["command"] == "learn" and config["read_options"].get("scales") and not tried:
        print_line("try also", "--ard auto: a lengthscale for each column, if the evidence prefers it")


def print_line(name: str, value: str) -> None:
    """Print a name and its value, in two columns."""
    typer.echo(f"  {name:<17}{value}")
