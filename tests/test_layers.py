"""The house: each layer imports only the layers before it, and each flat module stands somewhere among them.

Imports inside functions count too, except where a command or a picture loads what only it needs.
"""

from __future__ import annotations

import ast
from ast import Module
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "orbitgp"

# From the ground up. A module may import its own layer and the layers above it in this list.
LAYERS = (
    "machine",
    "orbits",
    "datasets",
    "kernels",
    "likelihoods",
    "inference",
    "planning",
    "saving",
    "training",
    "metrics",
    "plotting",
    "report",
    "estimators",
    "comparison",
    "botorch",
    "cli",
)
ENTRANCES = ("__init__", "__main__")  # these name everything and hold nothing


@cache
def modules() -> list[tuple[str, ast.Module]]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found.append((name, ast.parse(path.read_text())))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of orbitgp that this one imports, without the leading ``orbitgp.``; other packages whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, "imports are absolute"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            # ``from package import module`` is an import of the module.
            yield from (
                name if name.removeprefix("orbitgp.") in NAMES or node.module == "orbitgp" else node.module
                for name in inner
            )


NAMES = {name for name, _ in modules()}


def layer(module: str) -> str:
    return module.split(".")[0]


def violations(module: str, tree: ast.Module) -> list[str]:
    """What a module imports that stands above it."""
    if module in ENTRANCES:
        return []
    own = LAYERS.index(layer(module))
    names = [name.removeprefix("orbitgp.") for name in imported(tree) if name.startswith("orbitgp.")]
    above = [n for n in names if layer(n) in LAYERS and LAYERS.index(layer(n)) > own]
    unknown = [n for n in names if layer(n) not in (*LAYERS, "__version__")]
    return above + unknown


def test_every_module_has_a_layer() -> None:
    assert {layer(name) for name, _ in modules()} - set(ENTRANCES) == set(LAYERS)
    assert len([path for path in SOURCE.glob("*.py") if path.stem not in ENTRANCES]) <= 6


@pytest.mark.parametrize(("module", "tree"), [pytest.param(m, t, id=m) for m, t in modules()])
def test_imports_run_down(module: str, tree: Module) -> None:
    assert violations(module, tree) == []


def test_an_import_that_runs_up_is_found() -> None:
    assert violations("orbits.base", ast.parse("from orbitgp.kernels.covariance import Covariance")) == [
        "kernels.covariance"
    ]
    assert violations("kernels.covariance", ast.parse("def f():\n    from orbitgp import comparison")) == ["comparison"]
    assert violations("orbits.base", ast.parse("import orbitgp.nowhere")) == ["nowhere"]


def graph() -> dict[str, set[str]]:
    """Who imports whom, module by module. A package stands for its ``__init__``."""
    trees = dict(modules())
    return {name: {n.removeprefix("orbitgp.") for n in imported(tree)} & trees.keys() for name, tree in trees.items()}


def test_there_is_no_circle() -> None:
    remaining = {name: set(targets) for name, targets in graph().items() if name not in ENTRANCES}
    while free := [name for name, targets in remaining.items() if not targets & remaining.keys() - {name}]:
        for name in free:
            del remaining[name]
    assert not remaining


def test_scikit_learn_begins_at_the_estimators() -> None:
    """Apart from its data, which are ours, too."""
    assert users_before("estimators", "sklearn", but="sklearn.datasets") == set()


def test_matplotlib_begins_at_the_pictures() -> None:
    assert users_before("plotting", "matplotlib") == set()
    assert "report" in users_before("cli", "matplotlib")


def users_before(first: str, package: str, but: str = "") -> set[str]:
    """Layers before this one that import a package."""
    names = ((name, [n for n in imported(tree) if n != but]) for name, tree in modules() if name not in ENTRANCES)
    users = {layer(name) for name, found in names if any(n.split(".")[0] == package for n in found)}
    return {name for name in users if LAYERS.index(name) < LAYERS.index(first)}


def test_other_packages_are_used_by_their_public_modules() -> None:
    private = {
        (name, target)
        for name, tree in modules()
        for target in imported(tree)
        if not target.startswith("orbitgp") and any(part.startswith("_") for part in target.split(".")[1:])
    }
    assert private == set()


def test_only_the_command_line_prints() -> None:
    printing = {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {name for name in printing if layer(name) != "cli"} == set()
