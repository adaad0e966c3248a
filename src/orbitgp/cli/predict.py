"""``orbitgp predict``: predictions of a trained model for new inputs."""

from __future__ import annotations

import csv
import io
import json
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitgp.cli import arguments as o
from orbitgp.cli.errors import guarded
from orbitgp.cli.run_folder import Folder, load_model

if TYPE_CHECKING:
    from orbitgp.datasets.files import Inputs


@guarded
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")],
    inputs: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="New inputs, in any form that training data can have (targets are not needed), an image file or a folder of "
            "them; a name stands for that data set's test set.",
            autocompletion=o.complete_data,
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file (.csv or .json), not to the terminal.")] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="The probability of every class, not of the most probable alone.")
    ] = False,
    json_: o.Json = False,
) -> None:
    """Predict for new inputs: a class with its probability, or a value with its standard deviation.

    Inputs are read as the training data were: the same columns, the same size and colours. If they come with targets, the error
    is told on stderr.

    Examples:

        orbitgp predict runs/digits-rotation digits
        orbitgp predict runs/scans-affine new-scans/ --out predictions.csv
    """
    from orbitgp.datasets.files import load_inputs
    from orbitgp.saving.atomic import replace

    model, reading, known = _open(run)
    new = load_inputs(inputs, reading)
    _check_shape(model, new, inputs)
    _warn_of_units(new, known)
    rows = _rows(model, new, proba)
    as_json = json_ or (out is not None and out.suffix.lower() == ".json")
    text = json.dumps(rows, indent=1) + "\n" if as_json else _csv(rows)
    if out is None:
        typer.echo(text, nl=False)
    else:
        replace(out, lambda beside: beside.write_text(text, encoding="utf-8"))
        typer.echo(f"wrote {len(rows):,} predictions to {out}", err=True)
    if new.y is not None:
        _tell_error(model, new.x, new.y)


def _open(run: Path) -> tuple[Any, Any, dict[str, float]]:
    """The model, how its inputs are read, and within what limits they were."""
    from orbitgp.datasets.files import Reading

    if run.is_file():
        model = load_model(run)
        return model, Reading(image_shape=model.input_shape_ if len(model.input_shape_) > 1 else None), {}
    folder = Folder.existing(run)
    config = folder.read(folder.config)
    saved: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config["reading"].items()
    }
    return folder.load_model(), Reading(**saved), config["inputs"]


def _check_shape(model: Any, new: Inputs, where: str) -> None:
    found, wanted = new.x.shape[1:], tuple(model.input_shape_)
    if found != wanted and found != (prod(wanted),):
        raise ValueError(f"the inputs in {where} have shape {found}, but the model was trained on inputs of shape {wanted}.")


def _warn_of_units(new: Inputs, known: dict[str, float]) -> None:
    if not known:
        return
    span = known["high"] - known["low"]
    low, high = float(new.x.min()), float(new.x.max())
    if high > known["high"] + 2 * span or low < known["low"] - 2 * span:
        typer.echo(
            f"warning: these inputs go from {low:g} to {high:g}, those of training from {known['low']:g} to {known['high']:g}: "
            "are they in the same units?",
            err=True,
        )


def _rows(model: Any, new: Inputs, proba: bool) -> list[dict[str, Any]]:
    if not hasattr(model, "classes_"):
        mean, std = model.predict(new.x, return_std=True)
        if mean.ndim == 1:
            return [{"input": name, "mean": float(m), "std": float(s)} for name, m, s in zip(new.rows, mean, std, strict=True)]
        return [
            {
                "input": name,
                **{f"{what}_{j}": float(v[i, j]) for j in range(mean.shape[1]) for what, v in (("mean", mean), ("std", std))},
            }
            for i, name in enumerate(new.rows)
        ]
    probabilities = model.predict_proba(new.x)
    rows = []
    for name, probs in zip(new.rows, probabilities, strict=True):
        best = int(probs.argmax())
        row = {"input": name, "prediction": _plain(model.classes_[best]), "probability": round(float(probs[best]), 6)}
        if proba:
            row |= {f"p({_plain(c)})": round(float(p), 6) for c, p in zip(model.classes_, probs, strict=True)}
        rows.append(row)
    return rows


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _tell_error(model: Any, x: Any, y: Any) -> None:
    from orbitgp.report.cases import score

    scores = score(model, x, y, cases=0)
    for name, value in scores.numbers.items():
        typer.echo(f"{name}: {value}", err=True)
