"""``orbitgp predict``: what the model predicts, as files and with the error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

pytest.importorskip("typer")

from orbitgp import InvariantGPClassifier
from orbitgp.datasets import digits
from tests.cli.calling import QUICK, call

pytestmark = pytest.mark.usefixtures("one_start")


def test_predict_is_what_the_model_predicts(learned: tuple[Path, Result], some: Path, here: Path) -> None:
    run, _ = learned
    x = digits().x_test[:7]
    np.save(here / "new.npy", x)
    model = InvariantGPClassifier.load(run / "model.safetensors")
    result = call("predict", run, "new.npy")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "input,prediction,probability"
    assert [int(line.split(",")[0]) for line in lines[1:]] == list(range(1, 8))
    assert [int(line.split(",")[1]) for line in lines[1:]] == model.predict(x).tolist()
    rows = json.loads(call("predict", run, "new.npy", "--json", "--proba").stdout)
    assert [row["p(3)"] for row in rows] == pytest.approx(model.predict_proba(x)[:, 3].tolist(), abs=1e-5)
    # With targets, the error is told too; and a model file does as well as its run.
    scored = call("predict", run / "model.safetensors", some / "few.npz", "--out", "predictions.csv")
    assert scored.exit_code == 0, scored.stderr
    assert "Error: " in scored.stderr
    assert scored.stdout == ""
    assert len((here / "predictions.csv").read_text().splitlines()) == 51
    np.save(here / "bytes.npy", 255 * x)
    assert "same units?" in call("predict", run, "bytes.npy").stderr


@pytest.mark.parametrize("words", [["--out", "p.xlsx"], ["--out", "p"], ["--json", "--out", "p.csv"]])
def test_predict_refuses_a_file_that_it_would_not_fill_as_named(
    learned: tuple[Path, Result], some: Path, here: Path, words: list[str]
) -> None:
    result = call("predict", learned[0], some / "few.npz", *words)
    assert result.exit_code == 2
    assert "json file" in " ".join(result.stderr.replace("│", "").split())
    assert list(here.iterdir()) == []


def test_predict_writes_json_where_the_file_says_so(learned: tuple[Path, Result], some: Path) -> None:
    assert call("predict", learned[0], some / "few.npz", "--out", "p.JSON").exit_code == 0
    assert len(json.loads(Path("p.JSON").read_text())) == 50


def test_predictions_for_a_table_with_some_targets(some: Path, here: Path) -> None:
    learned = call("learn", some / "table.csv", "--target", "sum", "-o", "none", "--max-steps", "5", "--out", "run")
    assert learned.exit_code == 0, learned.stderr
    new = "left,right,sum\n0.5,0.25,0.75\n0.1,0.2,\n1,0.5,2.5\n"
    (here / "new.csv").write_text(new)
    result = call("predict", "run", "new.csv")
    assert result.exit_code == 0, result.stderr
    assert "column 'sum' has no value in row 2: the error is that of the other rows." in result.stderr
    rows = [line.split(",") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["input", "1", "2", "3"]  # rows as the messages count them
    assert all(len(word.lstrip("-")) <= 12 for row in rows[1:] for word in row)
    means = np.array([float(row[1]) for row in rows[1:]])
    error = np.sqrt(((means[0] - 0.75) ** 2 + (means[2] - 2.5) ** 2) / 2)
    assert float(re.search(r"Root mean square error: ([0-9.]+)", result.stderr)[1]) == pytest.approx(error, rel=0.01)


def test_arrays_of_another_shape_are_refused_where_columns_are_standardised() -> None:
    Path("some.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i / 3}" for i in range(12))]))
    assert call("learn", "some.csv", "--no-baseline", *QUICK, "--out", "run").exit_code == 0
    np.save("three.npy", np.zeros((4, 3)))
    result = call("predict", "run", "three.npy")
    assert result.exit_code == 1
    assert "the inputs in three.npy have shape (3,), but those of training (2,)." in " ".join(result.stderr.split())


def test_predictions_of_numbers_have_no_classes_and_words_no_error() -> None:
    rows = [f"{i},{i % 5},{i / 7}" for i in range(12)]
    Path("t.csv").write_text("\n".join(["a,b,target", *rows]))
    assert call("learn", "t.csv", "--no-baseline", *QUICK, "--out", "run").exit_code == 0
    refused = call("predict", "run", "t.csv", "--proba")
    assert refused.exit_code == 2
    assert "the model predicts numbers, which have no" in refused.stderr
    Path("words.csv").write_text("a,b,target\n1,2,x\n3,4,y\n")
    predicted = call("predict", "run", "words.csv", "--out", "p.csv")
    assert predicted.exit_code == 0
    assert "the targets are words, and the model predicts numbers: there is no error to tell." in predicted.stderr
