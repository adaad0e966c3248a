"""The result of a run: for scripts (result.json), for people (the report), and in the terminal."""

from __future__ import annotations

import json
import shlex
import time
from typing import TYPE_CHECKING, Any

import typer

from orbitgp.cli.run import Run

if TYPE_CHECKING:
    from orbitgp.comparison import Comparison
    from orbitgp.datasets.files import Data
    from orbitgp.orbits.description import Description
    from orbitgp.report.page import Content


def finish(
    run: Run,
    model: Any,
    start: Description,
    plain: float | None,
    certain: bool,
    stopped: bool = False,
    comparison: Comparison | None = None,
) -> dict[str, Any]:
    """Write the files of a run: the model first, as it is worth most, the result last, as it marks a finished run."""
    from orbitgp.report.cases import score
    from orbitgp.report.page import Content, write_report
    from orbitgp.report.summary import model_settings, provenance
    from orbitgp.report.words import nats, noise_in_units

    run.say("writing the report …")
    config, data, options = run.config, run.data, run.data.options
    made, scales, lengthscales = provenance(config["settings"]["device"]), options.scales or (), []
    if config["settings"]["ard"] == "auto" and options.scales is not None and model.ard_gain_ is not None:
        gain = nats(model.ard_gain_, sign=True)
        lengthscales = [f"A lengthscale for each column is {'' if model.ard_ else 'not '}used: {gain}."]
    content = Content(
        title=data.name,
        model=model,
        x=data.x,
        y=data.y,
        start=start,
        test=None if data.test is None else (data.test.x, data.test.y),
        names=data.rows,
        test_names=None if data.test is None else data.test.rows,
        target=options.target or "y",
        inverted=options.invert,
        columns=options.features,
        scales=scales,
        plain=plain,
        certain=certain,
        comparison=comparison,
        command=config["again"],
        settings={
            "Data": name_and_source(data),
            "Inputs": f"{len(data.x):,} of shape {' × '.join(str(n) for n in model.input_shape_)}",
            "Task": config["task_reason"],
            "Orbit": config["orbit"],
            **model_settings(model),
        },
        versions={**made["versions"], **{name: str(value) for name, value in made["hardware"].items()}},
        notes=[*data.notes, *["The run was stopped early: this is the model so far."] * model.interrupted_],
        remarks=[*lengthscales, *noise_in_units(model.orbit_.describe(), options.features, scales)],
    )
    begun = time.perf_counter()
    result = {**_result(content, run), "interrupted": bool(stopped or model.interrupted_)}
    if comparison is not None:
        test, ranked = content.test, {row.orbit: comparison.models[row.orbit] for row in comparison.rows}
        scores = {} if test is None else {comparison.best: content.scores}
        took = time.perf_counter() - begun
        for name in ranked:
            if test is not None and name not in scores and run.has_time(took):
                scores[name] = score(ranked[name], *test, 0)
        # Held-out data have no part in the verdict.
        tested = {name: " ".join(one.headline) for name, one in scores.items() if one}
        result["comparison"] = {**comparison.to_dict(), "test": tested}
    model.columns_ = options.table()  # so that the model file takes data frames, too
    model.save(run.model)
    run.write_json(run.path / "config.json", {**config, "decided": {"ard": "yes" if model.ard_ else "no"}})
    run.write_json(run.path / "history.json", model.history_)
    write_report(run.report, content)
    run.write_json(run.result, result)
    return result


def name_and_source(data: Data) -> str:
    """The name of the data, and where they are from, if that is another word."""
    return data.name if data.source == data.name else f"{data.name} ({data.source})"


def _result(content: Content, run: Run) -> dict[str, Any]:
    """The content of ``result.json``; its lines are those of the terminal, each with its name."""
    from orbitgp.report.summary import how_found, seen_by_g

    model, scores, config, plain = content.model, content.scores, run.config, content.plain
    learned, evidence, last = model.describe(), model.evidence_, model.history_[-1]
    remarks = [*content.remarks, *([] if scores is None else scores.notes)]
    lines = [("task", config["task_reason"]), *how_found(model)]
    if plain is not None:
        lines.append(("no invariance", f"{'≥ ' if evidence.is_bound else ''}{plain:,.1f} nats"))
    if scores is not None:
        lines.append((scores.headline[0], f"{scores.headline[1]} ({scores.count:,} cases)"))
    return {
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
        "evidence_without_invariance": plain,
        "num_data": evidence.num_data,
        "num_learned": evidence.learned_from,
        "steps": last["step"],
        "seconds": last["seconds"],
        "test": None if scores is None else {"count": scores.count, **scores.plain},
        "folder": str(run.path),
        "again": config["again"],
        "lines": lines,
    }


def print_result(result: dict[str, Any], run: Run) -> None:
    """Print the sentence, a few numbers, and what to do next; for scripts, all of it as JSON."""
    if run.json:
        typer.echo(json.dumps(result, indent=1))
        return
    for sentence in (result["summary"], *result["remarks"], ""):
        typer.echo(sentence)
    for name, text in result["lines"]:
        print_line(name, text)
    typer.echo("")
    print_next(run)


def print_next(run: Run) -> None:
    """Print where things are, and what to type next."""
    path = shlex.quote(str(run.path))
    print_line("report", str(run.report))
    print_line("model", str(run.model))
    print_line("open the report", f"orbitgp show {path} --open")
    print_line("predict", f"orbitgp predict {path} INPUT")


def print_line(name: str, value: str) -> None:
    """Print a name and its value, in two columns."""
    typer.echo(f"  {name:<16} {value}")
