"""``orbitgp export``: what a run has learned, for the tool in which a network is augmented."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitgp.cli.predict import load_model
from orbitgp.cli.run import Run


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    to: Annotated[str, typer.Option(metavar="TOOL", help="torchvision, kornia, …; any other word lists all.")] = "torchvision",
) -> None:
    """Print what a run has learned of images as code or configuration of another tool.

    The ranges say how far an input may go and keep its target. A network that is trained with them sees all of that range.

    Example:

        orbitgp export runs/digits-affine --to kornia > augmentation.py
    """
    from orbitgp.report.augmentation import augmentation

    run = Run.open(folder)
    if not run.model.is_file():
        raise FileNotFoundError(f"{folder} has no model yet: go on with {run.resume_command()}.")
    model = load_model(run.model)
    typer.echo(augmentation(model.orbit_, model.input_shape_, to), nl=False)
