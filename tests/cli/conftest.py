"""Data as files, and one run, for the tests of all commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from orbitgp.datasets import digits
from tests.quick_fits import one_start, short_ends

if TYPE_CHECKING:
    from typer.testing import Result


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORBITGP_TRACEBACK", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def quick(empty_charts: None, short_ends: None) -> None:
    """tests/report looks at charts. The run that many tests share has its own."""


@pytest.fixture(scope="session")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few digits, and a small table, as files."""
    folder = tmp_path_factory.mktemp("data")
    data = digits()
    np.savez(
        folder / "few.npz", x=data.x_train[:50], y=data.y_train[:50], x_test=data.x_test[:20], y_test=data.y_test[:20]
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    rows = "\n".join(f"{a},{b},{a + b}" for a, b in x)
    (folder / "table.csv").write_text(f"left,right,sum\n{rows}\n")
    (folder / "holes.csv").write_text(f"left,right,sum\n{rows}\n1,2,\n")
    return folder


@pytest.fixture(scope="session")
def learned(some: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One run that many tests look at."""
    from tests.cli.calling import QUICK, call

    run = tmp_path_factory.mktemp("runs") / "run"
    arguments = [
        "learn",
        str(some / "few.npz"),
        "--orbit",
        "rotation",
        "--test-fraction",
        "0.2",
        "--out",
        str(run),
        *QUICK,
    ]
    with one_start(), short_ends():
        return run, call(*arguments)
