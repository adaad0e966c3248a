"""Errors are one sentence, with an exit code."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from typer.testing import Result

pytest.importorskip("typer")

from orbitgp.cli.app import _sentence, print_errors
from tests.cli.calling import QUICK, call

pytestmark = pytest.mark.usefixtures("one_start")


def test_feature_maps_are_for_images(some: Path) -> None:
    result = call("learn", some / "table.csv", "--target", "sum", "--feature-map", "gradients", *QUICK)
    assert result.exit_code == 1
    assert "--feature-map gradients is for images, but the inputs have shape (2,)" in " ".join(result.stderr.split())


def test_a_warning_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    @print_errors
    def command() -> None:
        warnings.simplefilter("always")
        warnings.warn("the sky is falling.")

    command()
    assert capsys.readouterr().err == "warning: the sky is falling.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["learn", "nowhere.npz"], "there is no file or folder nowhere.npz"),
        (["learn", "TABLE"], "--target NAME"),
        (["learn", "TABLE", "--target", "sum", "--orbit", "rotation"], "--image-shape 28x28"),
        (["learn", "TABLE", "--target", "sum", "--orbit", "rotatoin"], "did you mean rotation?"),
        (["learn", "HOLES", "--target", "sum"], "the target column 'sum' has no value in row 41"),
        (["learn", "FEW", "--device", "abacus"], "device 'abacus' cannot be used"),
        (["learn", "FEW", "--likelihood", "cauchy"], "cauchy"),
        (["learn", "FEW", "--out", "."], "exists already"),
        (["learn", "--resume", "nowhere"], "there is no run folder nowhere"),
        (["learn", "--resume", "RUN"], "is finished: there is nothing to resume"),
        (["compare", "FEW", "-o", "none"], "at least two orbits"),
        (["predict", "nowhere", "FEW"], "there is no run folder nowhere"),
        (["predict", "RUN", "nowhere.npy"], "there is no file or folder nowhere.npy"),
        (["predict", "RUN", "TABLE"], "have shape (3,), but the model was trained on inputs of shape (8, 8)"),
        (["show", "."], "is not a run folder"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str], sentence: str, some: Path, learned: tuple[Path, Result], here: Path
) -> None:
    (here / "kept.txt").write_text("")
    places = {"FEW": some / "few.npz", "TABLE": some / "table.csv", "HOLES": some / "holes.csv", "RUN": learned[0]}
    result = call(*(places.get(word, word) for word in arguments))
    assert result.exit_code == 1
    assert sentence in result.stderr
    *before, error = result.stderr.strip().splitlines()
    assert error.startswith("error: ")
    # What is read, how the task was decided, and nothing else.
    assert all(line.startswith("reading ") or "the targets are" in line for line in before)
    assert result.stdout == ""
    assert [path.name for path in here.iterdir()] in (["kept.txt"], ["kept.txt", "runs"], ["runs", "kept.txt"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["learn", "--max-steps", "0"],
        ["learn", "--frob"],
        ["predict"],
        ["learn", "--resize", "big"],
        ["learn", "--task", "rank"],
    ],
)
def test_usage_errors(arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_errors_do_not_steer_the_terminal() -> None:
    assert _sentence(ValueError("\x1b[2Jgone")) == "\ufffd[2Jgone."


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["learn", "words.csv", "--task", "regression"],
            "regression needs numbers, but the targets are words, such as a.",
        ),
        (
            ["learn", "t.csv", "--task", "classification"],
            "classification needs classes, but the targets are decimals, such as",
        ),
        (
            ["learn", "t.csv", "--interval", "2nm"],
            "--interval is for signals: say that the rows are signals, with --signal.",
        ),
        (
            ["learn", "t.csv", "--test-fraction", "0.01"],
            "a test fraction of 0.01 leaves none of 12 rows to test: take more.",
        ),
        (["compare", "t.csv", "-o", "none", "-o", "noise(0)"], "noise(0) is not possible: init_scale must be positive"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(arguments: list[str], sentence: str) -> None:
    rows = [f"{i},{i % 5},{i / 7}" for i in range(12)]
    Path("t.csv").write_text("\n".join(["a,b,target", *rows]))
    Path("words.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 5},{'ab'[i % 2]}" for i in range(12))]))
    result = call(*arguments, "--out", "run")
    assert result.exit_code != 0
    assert sentence in " ".join(result.stderr.split())
    assert not Path("run").exists()
