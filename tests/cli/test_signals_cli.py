"""Signals on the command line: flags, intervals in units, the files of the archive, reports with signals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

typer_testing = pytest.importorskip("typer.testing")
pytest.importorskip("matplotlib")

from orbitgp.cli.app import app  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_start")
QUICK = ("--max-steps", "2", "--num-samples", "4", "--quiet", "--out", "run")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    wide = np.arange(24) % 2
    time, place = np.arange(20), rng.uniform(7, 13, 24)
    x = np.exp(-0.5 * ((time - place[:, None]) / np.where(wide, 3.0, 1.5)[:, None]) ** 2)
    lines = [",".join(f"{v:.4f}" for v in row) for row in x]
    names = ",".join([*(f"t{i}" for i in time), "class"])
    Path("signals.csv").write_text("\n".join([names, *(f"{line},{c}" for line, c in zip(lines, wide, strict=True))]))
    Path("bumps_TRAIN.tsv").write_text(
        "\n".join(f"{c}\t" + line.replace(",", "\t") for line, c in zip(lines, wide, strict=True))
    )
    Path("bumps_TEST.tsv").write_text(Path("bumps_TRAIN.tsv").read_text())
    np.savez("two.npz", x=np.stack([x, x], 1), y=np.where(wide, "wide", "narrow"))


def call(*arguments: str) -> Result:
    return typer_testing.CliRunner().invoke(app, [str(a) for a in arguments])


def found(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(Path("run/result.json").read_text())


@pytest.mark.slow
def test_what_is_learned_is_said_in_seconds() -> None:
    result = found(call("learn", "signals.csv", "--signal", "--interval", "0.01s", "--no-baseline", *QUICK))
    assert result["units"] == {"shift": "s"}
    assert "shifts within ±0.0" in result["summary"]
    assert " s" in result["summary"]
    assert "--signal --interval 0.01s" in result["again"]
    assert call("predict", "run", "signals.csv").exit_code == 0


@pytest.mark.slow
def test_compare_has_orbits_for_signals() -> None:
    result = found(call("compare", "signals.csv", "--signal", "--jobs", "1", "--refine-seconds", "0", *QUICK))
    assert {row["orbit"] for row in result["comparison"]["rows"]} == {"none", "timeshift", "timewarp", "gain*offset"}


@pytest.mark.slow
def test_the_tsv_of_the_archive_has_its_class_first_and_its_test_set_beside_it() -> None:
    words = (
        "learn",
        "bumps_TRAIN.tsv",
        "--signal",
        "--orbit",
        "none",
        "--feature-map",
        "shapes",
        "--no-baseline",
        *QUICK,
    )
    assert found(call(*words))["test"]["count"] == 24


@pytest.mark.slow
def test_two_channels() -> None:
    words = ("learn", "two.npz", "--signal", "--orbit", "timewarp*gain", "--interval", "2 nm", "--no-baseline", *QUICK)
    result = found(call(*words))
    assert result["units"] == {"amplitude": "nm", "smoothness": "nm", "gain": "×"}
    assert "2 × 20" in Path("run/report.html").read_text()
    assert "<img" not in Path("run/report.html").read_text()  # signals are charts, not pictures
    predicted = call("predict", "run", "two.npz")
    assert predicted.exit_code == 0
    assert "narrow" in predicted.output


@pytest.mark.slow
def test_rows_with_several_channels() -> None:
    result = found(
        call("learn", "signals.csv", "--signal-shape", "2x10", "--orbit", "timeshift", "--no-baseline", *QUICK)
    )
    assert "--signal-shape 2x10" in result["again"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--signal", "--interval", "fast"), "write a length and its unit, as in 0.01s or 2nm, not 'fast'."),
        (("--signal", "--interval", "0s"), "write a length and its unit"),
        (("--signal", "--feature-map", "gradients"), "--feature-map gradients is for images"),
        (("--signal", "--feature-map", "frame"), "--feature-map frame is for images"),
        (
            ("--feature-map", "shapes"),
            "--feature-map shapes is for signals: say that the rows are signals, with --signal.",
        ),
        (("--signal-shape", "3x7"), "--signal-shape 3x7 has 21 samples, but rows of signals.csv have 20."),
    ],
)
def test_errors_are_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    result = call("learn", "signals.csv", *words, *QUICK)
    assert result.exit_code != 0
    assert sentence in " ".join(result.output.replace("│", " ").split())
    assert not Path("run/model.safetensors").exists()
