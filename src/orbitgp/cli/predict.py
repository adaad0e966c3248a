"""``orbitgp predict``: predictions of a trained model for new inputs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from orbitgp.cli.arguments import Json
from orbitgp.cli.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

    from orbitgp.datasets.files import Data, ReadOptions


_INPUT_HELP = (
    "New inputs, in any form that training data can have (targets are not needed), an image file or a folder of them; "
    "a name stands for that data set's test set."
)
_READ_HELP = "How pandas reads a table, where that is not as for the training data."


def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model file.")],
    inputs: Annotated[str, typer.Argument(metavar="INPUT", help=_INPUT_HELP)],
    out: Annotated[Path | None, Option(help="Write to this file (.csv or .json), not to the terminal.")] = None,
    proba: Annotated[bool, Option("--proba", help="Give the probability of each class, not just of the best.")] = False,
    read: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help=_READ_HELP)] = None,
    json_: Json = False,
) -> None:
    """Predict for new inputs: a class with its probability, or a value with its standard deviation.

    Inputs are read as the training data were: the same columns, the same size and colours. Rows without a name have
    numbers, from 1 on. If inputs come with targets, the error is printed on stderr.

    Examples:

        orbitgp predict runs/digits-rotation digits
        orbitgp predict runs/scans-affine new-scans/ --out predictions.csv
    """
    from orbitgp.datasets.files import as_trained, load_inputs, read_option
    from orbitgp.report.cases import score
    from orbitgp.saving.container import replace

    kinds = (".json",) if json_ else (".csv", ".json")
    form = kinds[0] if out is None else out.suffix.lower()
    if form not in kinds:
        raise typer.BadParameter(f"write to a {' or '.join(kinds)} file, not {out}.", param_hint="--out")
    model, options, known = _open(folder)
    new = load_inputs(inputs, dataclasses.replace(options, read=dict(map(read_option, read))) if read else options)
    _check(model, new, inputs, known)
    for note in new.notes:
        typer.echo(f"note: {note}", err=True)
    classes = getattr(model, "classes_", None)
    if proba and classes is None:
        raise typer.BadParameter("the model predicts numbers, which have no classes.", param_hint="--proba")
    table = _predictions(model, new, proba)
    if form == ".csv":
        text = table.to_csv(index=False, float_format="%.7g")
    else:
        text = json.dumps(table.to_dict(orient="records"), indent=1) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        replace(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        typer.echo(f"wrote {len(table):,} predictions to {out}", err=True)
    if new.y is None:
        return
    if new.y.dtype.kind in "US" and classes is None:
        typer.echo("note: the targets are words, and the model predicts numbers: there is no error to tell.", err=True)
        return
    x = new.x if new.with_target is None else new.x[new.with_target]
    scores = score(model, x, new.y if classes is None else as_trained(new.y, classes), cases=0)
    lines = [f"{name}: {value}" for name, value in scores.numbers.items()]
    for line in (*lines, *(f"note: {note}" for note in scores.notes)):
        typer.echo(line, err=True)


def _open(path: Path) -> tuple[Any, ReadOptions, Sequence[float] | None]:
    """The model, how to read its inputs, and the range of those that it was trained on."""
    from orbitgp.datasets.files import ReadOptions

    if path.is_file():
        model = load_model(path)
        return model, ReadOptions(image_shape=model.input_shape_ if len(model.input_shape_) > 1 else None), None
    run = Run.open(path)
    # Every row is predicted. A column that named the rows may be missing from new data.
    options = dataclasses.replace(run.read_options(), drop_missing=False)
    if not run.model.is_file():
        hint = f": go on with {run.resume_command()}" if run.checkpoint.is_file() else ""
        raise FileNotFoundError(f"{path} has no model yet{hint}.")
    return load_model(run.model), options, run.config["inputs"]


def load_model(path: Path) -> Any:
    """The fitted classifier or regressor in a file."""
    from orbitgp.estimators import InvariantGPClassifier, InvariantGPRegressor
    from orbitgp.saving.container import read

    kind = read(path).kind
    return (InvariantGPRegressor if kind == "regressor" else InvariantGPClassifier).load(path)


def _check(model: Any, new: Data, where: str, known: Sequence[float] | None) -> None:
    """Refuse inputs of another shape than those of training, and warn of a range other than the ``known`` one."""
    found, shape = new.x.shape[1:], tuple(model.input_shape_)
    if found not in (shape, (prod(shape),)):
        raise ValueError(f"inputs in {where} have shape {found}, but the model was trained on inputs of shape {shape}.")
    low, high = float(new.x.min()), float(new.x.max())
    smallest, largest = known or (low, high)
    if max(high - largest, smallest - low) > 2 * (largest - smallest):
        said = f"these inputs go from {low:g} to {high:g}, those of training from {smallest:g} to {largest:g}"
        typer.echo(f"warning: {said}: are they in the same units?", err=True)


def _predictions(model: Any, new: Data, proba: bool) -> DataFrame:
    """One row for each input, with its name."""
    import pandas

    table = pandas.DataFrame({"input": new.rows})
    if hasattr(model, "classes_"):
        probabilities = model.predict_proba(new.x)
        table["prediction"] = model.classes_[probabilities.argmax(1)]
        table["probability"] = probabilities.max(1).round(6)
        if proba:
            named = [f"{label:.7g}" if isinstance(label, float) else label for label in model.classes_]  # as written
            table[[f"p({name})" for name in named]] = probabilities.round(6)
        return table
    mean, std = model.predict(new.x, return_std=True)
    if mean.ndim == 1:
        return table.assign(mean=mean, std=std)
    for j in range(mean.shape[1]):
        table[f"mean_{j}"], table[f"std_{j}"] = mean[:, j], std[:, j]
    return table
