"""``orbitgp learn``: what it writes and says."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

pytest.importorskip("typer")

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.datasets import digits
from orbitgp.orbits.description import number
from tests.cli.calling import QUICK, call

pytestmark = pytest.mark.usefixtures("one_start")


def test_learn_writes_a_run_and_says_what_it_learned(learned: tuple[Path, Result]) -> None:
    run, result = learned
    assert result.exit_code == 0, result.stderr
    assert "rotations within ±" in result.stdout
    decided = "classification: the targets are 9 distinct whole numbers; --task regression takes them as numbers"
    assert decided in result.stdout
    assert decided in result.stderr
    assert "no invariance" in result.stdout
    assert "test error" in result.stdout
    names = {path.name for path in run.iterdir()}
    assert names == {"config.json", "history.json", "result.json", "model.safetensors", "report.html"}
    found = json.loads((run / "result.json").read_text())
    assert found["evidence"] > -1e6
    assert found["units"] == {"degrees": "°"}
    assert "--max-steps 12" in found["again"]
    assert "--orbit rotation" in found["again"]
    history = json.loads((run / "history.json").read_text())
    assert [record["step"] for record in history] == sorted(record["step"] for record in history)


@pytest.mark.slow
def test_learn_with_a_feature_map(some: Path) -> None:
    words = [
        "learn",
        some / "few.npz",
        "--orbit",
        "rotation",
        "--no-baseline",
        "--feature-map",
        "framed-gradients",
        *QUICK,
    ]
    words += ["--max-data", "20"]
    result = call(*words, "--out", "run")
    assert result.exit_code == 0, result.stderr
    found = json.loads(Path("run/result.json").read_text())
    assert "--feature-map framed-gradients" in found["again"]
    assert found["feature_map"].startswith("Frame (width ")
    assert "), OrientedGradients (window " in found["feature_map"]
    assert found["feature_map"] in Path("run/report.html").read_text()
    assert " ".join(found["feature_map"].split()) in " ".join(result.stdout.split())
    assert call("predict", "run", some / "few.npz").exit_code == 0


@pytest.mark.slow
def test_the_command_to_run_it_again_says_the_same(learned: tuple[Path, Result]) -> None:
    run, _ = learned
    config = json.loads((run / "config.json").read_text())
    again = call(*shlex.split(config["again"])[1:], "--out", "again", "--quiet")
    assert again.exit_code == 0, again.stderr
    first, second = (InvariantGPClassifier.load(folder / "model.safetensors") for folder in (run, Path("again")))
    assert first.evidence_.value == second.evidence_.value


@pytest.mark.slow
def test_a_table_regression_without_baseline(some: Path) -> None:
    result = call(
        "learn",
        some / "table.csv",
        "--target",
        "sum",
        "-o",
        "swap(0, 1)",
        "--no-baseline",
        "--json",
        "--quiet",
        "--max-data",
        "20",
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["summary"] == "Learned exchanges of coordinates; not compared with no invariance."
    assert found["evidence_without_invariance"] is None
    assert found["task"] == "regression of column 'sum' (--target): the targets are numbers"
    assert "--no-baseline" in found["again"]
    assert found["folder"] == os.path.join("runs", "table-swap-0-1")
    assert result.stderr == ""
    Path("new.csv").write_text("right,left\n1,0.5\n-1,2\n")
    predicted = call("predict", found["folder"], "new.csv")
    assert predicted.stdout.splitlines()[0] == "input,mean,std"
    assert len(predicted.stdout.splitlines()) == 3


@pytest.mark.slow
def test_a_table_with_ids_words_and_columns_by_name() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(50, 5, size=(2, 40))
    rows = "".join(
        f"p{i};{['no', 'yes'][i % 2]};{a};{b};x;{a + b + 3 * (i % 2)}\n"
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )
    Path("t.csv").write_text("id;smokes;left;right;useless;sum\n" + rows)
    arguments = [
        "learn",
        "t.csv",
        "--target",
        "sum",
        "--drop",
        "useless",
        "--orbit",
        "swap(left, right)",
        "--out",
        "run",
    ]
    assert "--read sep=';'" in call(*arguments).stderr
    result = call(*arguments, "--read", "sep=;")
    assert result.exit_code == 0, result.stderr
    assert "note: column 'id' names the rows and is no input" in result.stderr
    assert "Insensitive to exchanges of left and right; evidence +" in result.stdout
    found = json.loads(Path("run/result.json").read_text())
    assert "--drop useless" in found["again"]
    assert "--read 'sep=;'" in found["again"]
    options = json.loads(Path("run/config.json").read_text())["read_options"]
    assert options["features"] == ["smokes=yes", "left", "right"]
    assert options["scales"][1] == options["scales"][2]  # or they could not be exchanged
    Path("new.csv").write_text("right,left,smokes,id\n45,55,no,q1\n55,45,no,q2\n")
    predicted = call("predict", "run", "new.csv", "--read", "sep=,")
    first, second = predicted.stdout.splitlines()[1:]
    assert first.startswith("q1,")
    assert second.startswith("q2,")
    assert [float(v) for v in first.split(",")[1:]] == pytest.approx([float(v) for v in second.split(",")[1:]])
    assert float(first.split(",")[1]) == pytest.approx(100, abs=1)
    frame = pytest.importorskip("pandas").read_csv("new.csv")
    alone = InvariantGPRegressor.load("run/model.safetensors").predict(frame)  # the model file knows its columns
    assert alone == pytest.approx([float(line.split(",")[1]) for line in (first, second)], rel=1e-6)


@pytest.mark.slow
def test_noise_on_standardised_columns_is_said_in_their_units(some: Path) -> None:
    words = ["learn", some / "table.csv", "--target", "sum", "--orbit", "noise", "--no-baseline", *QUICK]
    result = call(*words, "-q", "--out", "run")
    assert result.exit_code == 0, result.stderr
    noise = json.loads(Path("run/result.json").read_text())["learned"]["scale"]
    scales = json.loads(Path("run/config.json").read_text())["read_options"]["scales"]
    in_left = f"the noise has a standard deviation of {number(noise * scales[0][1])} in left"
    assert f"Columns are standardised. In their own units, {in_left}" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["learn", "--no-baseline"], ["compare", "-o", "none", "-o", "rotation", "--jobs", "1"]]
)
def test_pixels_beyond_their_range_are_said_once(here: Any, command: list[str]) -> None:
    data = digits()
    np.savez(here / "large.npz", x=1000 * data.x_train[:30], y=data.y_train[:30])
    result = call(command[0], here / "large.npz", *command[1:], *QUICK)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("the pixels") == 1


@pytest.mark.slow
def test_a_lengthscale_for_each_column_where_the_evidence_asks_for_it() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    rows = "".join(f"{a},{b},{c},{np.sin(1.5 * a) + 0.05 * rng.normal()}\n" for a, b, c in x)  # of one column only
    Path("t.csv").write_text("a,b,c,y\n" + rows)
    arguments = ["learn", "t.csv", "--target", "y", "--orbit", "none", "-q"]
    result = call(*arguments, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert json.loads(Path("run/config.json").read_text())["decided"] == {"ard": "yes"}
    assert "A lengthscale for each column is used: +" in result.stdout
    assert (
        "lengthscale" not in call(*arguments, "--drop", "b", "--drop", "c", "--out", "one").stdout
    )  # one column has one
    assert "--ard yes is for" in call("learn", "digits", "--ard", "yes").stderr
    alone = call(*arguments, "--ard", "no", "--out", "alone")
    assert alone.exit_code == 0
    evidence = [json.loads(Path(run, "result.json").read_text())["evidence"] for run in ("run", "alone")]
    assert evidence[0] > evidence[1] + 3


@pytest.mark.slow
def test_a_table_with_missing_targets_without_its_holes(some: Path) -> None:
    words = [
        "learn",
        some / "holes.csv",
        "--target",
        "sum",
        "--drop-missing",
        "--task",
        "regression",
        "--no-baseline",
        *QUICK,
    ]
    result = call(*words, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert "note: 1 of 41 rows have missing values and are left out." in result.stderr
    assert "regression of column 'sum' (--target): as --task says" in result.stdout
    assert "--drop-missing --task regression" in json.loads(Path("run/result.json").read_text())["again"]
    predicted = call("predict", "run", some / "holes.csv")
    assert len(predicted.stdout.splitlines()) == 42


def test_test_cases_of_classes_not_trained_on_are_errors() -> None:
    lines = [f"{i},{i % 7},{i % 3}" for i in range(30)]
    Path("train.csv").write_text("\n".join(["a,b,target", *lines]))
    Path("test.csv").write_text(
        "\n".join(["a,b,target", *(line[:-2] + ",9" if line.endswith(",2") else line for line in lines)])
    )
    learned = call("learn", "train.csv", "--test", "test.csv", "--no-baseline", *QUICK, "--out", "run")
    assert learned.exit_code == 0, learned.stderr
    note = "10 of 30 test cases are of classes that were not trained on: they count as errors only."
    found = json.loads(Path("run/result.json").read_text())
    assert found["test"]["count"] == 30
    assert found["test"]["error"] >= 1 / 3
    assert note in found["notes"]
    assert note in " ".join(learned.stdout.split())
    predicted = call("predict", "run", "test.csv", "--out", "p.csv")
    wrong = round(30 * found["test"]["error"])
    assert f"({wrong} of 30)" in predicted.stderr
    assert note in " ".join(predicted.stderr.split())


def test_some_of_the_data_are_of_the_same_task_as_all() -> None:
    Path("some.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i % 3}" for i in range(30))]))
    result = call("learn", "some.csv", "--max-data", "5", "--no-baseline", *QUICK, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert json.loads(Path("run/config.json").read_text())["task"] == "classification"


@pytest.mark.parametrize(
    ("row", "sentence"), [("1e200,1,1", "column 'a' holds numbers so large"), ("1,1,1e200", "the targets are so large")]
)
def test_numbers_whose_variance_is_infinite_are_refused(row: str, sentence: str) -> None:
    Path("large.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i / 3}" for i in range(12)), row]))
    result = call("learn", "large.csv", "--no-baseline", *QUICK, "--out", "run")
    assert result.exit_code == 1
    assert sentence in " ".join(result.stderr.split())
    assert "warning" not in result.stderr


def test_one_picture_that_cannot_be_read_stops_nothing_unless_asked_to() -> None:
    from PIL import Image

    for name in "ab":
        Path("photos", name).mkdir(parents=True)
        for i, image in enumerate(digits().x_train[:4]):
            Image.fromarray((255 * image).astype(np.uint8)).save(f"photos/{name}/{i}.png")
    Path("photos/a/torn.png").write_bytes(b"")
    words = ["learn", "photos", "--orbit", "none", "--no-baseline", *QUICK, "--out", "run"]
    refused = call(*words, "--strict")
    assert (refused.exit_code, "photos/a/torn.png cannot be read as an image" in refused.stderr) == (1, True)
    result = call(*words)
    assert result.exit_code == 0, result.stderr
    assert "note: 1 of 9 images cannot be read and are left out: photos/a/torn.png." in result.stderr
    predicted = call("predict", "run", "photos/a")
    assert (predicted.exit_code, len(predicted.stdout.splitlines())) == (0, 5)
    assert "torn.png" in predicted.stderr


@pytest.mark.parametrize(("took", "limits"), [(70.0, [70.0, 20.0]), (95.0, [70.0])])
def test_a_limit_of_time_is_that_of_the_command(
    took: float, limits: list[float], some: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fit takes this long. The model without invariance has what is left, or is left out."""
    now, seen, plain = [1.0], [], InvariantGPClassifier.fit

    def fit(self: Any, *data: Any, **options: Any) -> InvariantGPClassifier:
        seen.append(self.max_seconds)
        assert getattr(options["callback"], "begun", 1.0) == (
            1.0 if len(seen) == 1 else None
        )  # its limit is of the command
        now[0] += took
        return plain(self.set_params(max_seconds=None), *data, **options)

    for module in ("begin", "learn"):
        monkeypatch.setattr(f"orbitgp.cli.{module}.time", SimpleNamespace(perf_counter=lambda: now[0]))
    planned: list[float] = []

    def tell_estimate(_say: Any, _data: Any, models: list[InvariantGPClassifier]) -> list[float]:
        planned.extend(model.max_seconds or 0.0 for model in models)
        return planned

    monkeypatch.setattr("orbitgp.cli.learn.tell_estimate", tell_estimate)
    monkeypatch.setattr(InvariantGPClassifier, "fit", fit)
    result = call("learn", some / "few.npz", "--orbit", "rotation", "--max-seconds", 100, *QUICK, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert planned == [70.0, 20.0]
    assert seen == pytest.approx(limits)
    found = json.loads(Path("run/result.json").read_text())
    assert (found["evidence_without_invariance"] is None) == (len(limits) == 1)
    assert ("no time left for the model without invariance: raise --max-seconds" in result.stderr) == (len(limits) == 1)
    assert not found["interrupted"]
