"""``orbitgp compare``: it ranks, and keeps the best."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("typer")

from orbitgp import InvariantGPRegressor
from tests.cli.calling import QUICK, call

pytestmark = pytest.mark.usefixtures("one_start")


@pytest.mark.slow
def test_a_lengthscale_for_each_column_in_a_comparison(some: Path) -> None:
    limits = ("--max-steps", "5", "--num-samples", "4", "--refine-seconds", "0")
    table = (some / "table.csv", "--target", "sum", "-o", "none", "-o", "noise", "--jobs", "1", *limits)
    for ard in ("yes", "auto"):
        done = call("compare", *table, "--ard", ard, "--out", ard)
        assert done.exit_code == 0, done.stderr
        lengthscales = InvariantGPRegressor.load(f"{ard}/model.safetensors").kernel_.base_kernel.lengthscale.numel()
        config = json.loads(Path(ard, "config.json").read_text())
        assert config["settings"]["ard"] == ard
        assert config["decided"] == {"ard": "yes" if lengthscales == 2 else "no"}
        assert ard == "auto" or config["decided"]["ard"] == ard


@pytest.mark.slow
def test_compare_ranks_and_keeps_the_best(some: Path) -> None:
    orbits = ["-o", "none", "-o", "swap(0,1)", "-o", "noise"]
    budget = ["--refine-seconds", "0", "--jobs", "1", "-m", "8", "--max-steps", "12", "--num-samples", "4"]
    result = call("compare", some / "table.csv", "--target", "sum", *orbits, *budget)
    assert result.exit_code == 0, result.stderr
    assert "behind the best" in result.stdout
    run = Path("runs/table-compare")
    assert {path.name for path in run.iterdir()} == {
        "config.json",
        "history.json",
        "result.json",
        "model.safetensors",
        "report.html",
    }
    found = json.loads((run / "result.json").read_text())
    assert {row["orbit"] for row in found["comparison"]["rows"]} == {"none", "swap(0,1)", "noise"}
    assert "--refine-seconds 0" in found["again"]
    assert call("predict", run, some / "table.csv").exit_code == 0
    assert found["comparison"]["verdict"] in call("show", run).stdout


@pytest.mark.slow
def test_compare_orbits_whose_arguments_are_written_with_spaces(some: Path) -> None:
    data = [some / "table.csv", "--target", "sum"]
    result = call(
        "compare", *data, "-o", "none", "-o", "swap(0, 1)", "--refine-seconds", "0", "-j", "1", "--out", "run", *QUICK
    )
    assert result.exit_code == 0, result.stderr
    assert "swap(0,1)" in result.stdout


@pytest.mark.parametrize(
    ("limit", "jobs", "each"), [(100, 1, 80 / 3), (100, 2, 70 / 2), (100, 9, 70.0), (40, 9, 25 / 3), (22, 9, 7 / 3)]
)
def test_a_limit_of_time_is_shared_by_the_models(
    limit: int, jobs: int, each: float, some: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data take ten seconds, workers as long to begin, the report half as long and a tenth of the limit at least. Where
    workers would take more than a quarter of what is left, one process trains all. Refining has none unless it is asked
    for."""
    seen, moments = {}, itertools.chain([0.0], itertools.repeat(10.0))
    for module in ("begin", "compare"):
        monkeypatch.setattr(f"orbitgp.cli.{module}.time", SimpleNamespace(perf_counter=lambda: next(moments)))

    def compare(**given: Any) -> None:
        seen.update(given)
        raise ValueError("seen")

    monkeypatch.setattr("orbitgp.comparison.compare", compare)
    orbits = [word for name in ("none", "rotation", "affine") for word in ("-o", name)]
    assert call("compare", some / "few.npz", *orbits, "--max-seconds", limit, "-j", jobs).exit_code != 0
    assert seen["max_seconds"] == pytest.approx(each)
    assert seen["refine_seconds"] == 0.0
