"""The house in figures: ``python -m tests.house`` prints how much code, how many constants and how many options there
are."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

from orbitgp import TrainingOptions

SOURCE = Path(__file__).parents[1] / "src" / "orbitgp"
TUNED = ("training", "inference", "estimators", "planning")  # layers whose numbers are counted


def numeric(node: ast.expr) -> bool:
    """Whether an expression is a number, arithmetic of numbers, or a tuple of them."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return numeric(node.operand)
    if isinstance(node, ast.BinOp):
        return numeric(node.left) and numeric(node.right)
    return isinstance(node, ast.Tuple) and all(map(numeric, node.elts))


def constants(path: Path) -> int:
    """Numbers that a module assigns at its top level."""
    found = 0
    for node in ast.parse(path.read_text()).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and numeric(value):
            found += len(value.elts) if isinstance(value, ast.Tuple) else 1
    return found


def figures() -> dict[str, int]:
    """All of them, by name."""
    paths = sorted(SOURCE.rglob("*.py"))
    lines = [len(path.read_text().splitlines()) for path in paths]
    tuned = [path for path in paths if path.relative_to(SOURCE).parts[0] in TUNED]
    return {
        "lines": sum(lines),
        "files": len(paths),
        "longest file": max(lines),
        "numbers in " + ", ".join(TUNED): sum(map(constants, tuned)),
        "options": len(fields(TrainingOptions)),
        "files of C": len(list(SOURCE.rglob("*.c"))),
    }


if __name__ == "__main__":
    for name, figure in figures().items():
        print(f"{figure:7,}  {name}")
