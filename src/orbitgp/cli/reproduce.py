"""``orbitgp reproduce``: run an experiment of the paper or of this project again."""

from __future__ import annotations

import ast
import pkgutil
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Annotated

import typer

from orbitgp.cli.errors import guarded


def experiments() -> dict[str, str]:
    """Names of experiments, with the first line of what they say of themselves; nothing is imported but their folder."""
    import orbitgp.experiments

    found = {}
    for folder in orbitgp.experiments.__path__:
        for module in pkgutil.iter_modules([folder]):
            tree = ast.parse((Path(folder) / f"{module.name}.py").read_text(encoding="utf-8")) if not module.ispkg else None
            if tree is not None and any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
                found[module.name] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def _complete(incomplete: str) -> list[tuple[str, str]]:
    return [(name, says) for name, says in experiments().items() if name.startswith(incomplete)]


@guarded
def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; none for a list.", autocompletion=_complete)] = None,
    options: Annotated[list[str] | None, typer.Argument(help="Options of the experiment.")] = None,
) -> None:
    """Run an experiment again: its table in the terminal, its record and picture in a folder.

    Further options go to the experiment itself; NAME --help lists them.

    Examples:

        orbitgp reproduce
        orbitgp reproduce toy --out results
    """
    known = experiments()
    if name in (None, "-h", "--help"):
        if name is not None:
            typer.echo(cleandoc(reproduce.__doc__ or "") + "\n")
        for each, says in known.items():
            typer.echo(f"{each:<20}{says}")
        return
    key = str(name).replace("-", "_")
    if key not in known:
        raise ValueError(f"there is no experiment {name!r}: there are {', '.join(known)}.")
    import_module(f"orbitgp.experiments.{key}").main(list(options or []))
