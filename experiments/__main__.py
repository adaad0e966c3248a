"""``python -m experiments``: the list of experiments; ``python -m experiments NAME [options]``: run one of them
again."""

from __future__ import annotations

import ast
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import experiments


def available() -> dict[str, str]:
    """Names of experiments, and of what else has a command, with the first line of their docstrings. Nothing is
    imported."""
    found = {}
    for folder in experiments.__path__:
        for module in pkgutil.iter_modules([folder]):
            tree = ast.parse((Path(folder) / f"{module.name}.py").read_text(encoding="utf-8"))
            if module.name != "__main__" and _names(tree) & {"EXPERIMENT", "main"}:
                found[module.name] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


def _names(tree: ast.Module) -> set[str]:
    """What a module defines: its functions and the variables that it assigns."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions | {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}


def main(arguments: list[str]) -> None:
    """List the experiments, or hand the remaining arguments to the one that is named."""
    known = available()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m experiments NAME [options]; NAME --help lists the options.\n")
        for name, summary in known.items():
            print(f"{name:<20}{summary}")
        return
    name = arguments[0].replace("-", "_")
    if name not in known:
        sys.exit(f"there is no experiment {arguments[0]!r}; available are {', '.join(known)}.")
    module = import_module(f"experiments.{name}")
    getattr(module, "EXPERIMENT", module).main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
