"""The command line: what it writes, what it says, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")

from orbitgp import InvariantGPClassifier, InvariantGPRegressor  # noqa: E402
from orbitgp.cli.app import app  # noqa: E402
from orbitgp.cli.begin import claim, create  # noqa: E402
from orbitgp.cli.errors import _sentence, print_errors  # noqa: E402
from orbitgp.cli.estimate import print_estimate  # noqa: E402
from orbitgp.cli.progress import Progress  # noqa: E402
from orbitgp.cli.results import name_and_source  # noqa: E402
from orbitgp.cli.run_folder import RunFolder  # noqa: E402
from orbitgp.comparison.parallel import Job, train  # noqa: E402
from orbitgp.datasets import digits  # noqa: E402
from orbitgp.datasets.files import load  # noqa: E402
from orbitgp.orbits import Affine, GaussianNoise, Identity, Rotation  # noqa: E402
from orbitgp.orbits.description import Quantity, number  # noqa: E402
from orbitgp.report.words import noise_in_units  # noqa: E402
from orbitgp.training.collapsed_climb import CollapsedClimb  # noqa: E402
from orbitgp.training.quasi_newton import QuasiNewton  # noqa: E402
from orbitgp.training.stochastic_steps import StochasticSteps  # noqa: E402

QUICK = ["-m", "12", "--num-samples", "4", "--max-steps", "12", "--batch-size", "40"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORBITGP_TRACEBACK", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A few digits, and a small table, as files."""
    folder = tmp_path_factory.mktemp("data")
    data = digits()
    np.savez(folder / "few.npz", x=data.x_train[:50], y=data.y_train[:50], x_test=data.x_test[:20], y_test=data.y_test[:20])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    rows = "\n".join(f"{a},{b},{a + b}" for a, b in x)
    (folder / "table.csv").write_text(f"left,right,sum\n{rows}\n")
    (folder / "holes.csv").write_text(f"left,right,sum\n{rows}\n1,2,\n")
    return folder


@pytest.fixture(scope="module")
def learned(some, tmp_path_factory):
    """One run that the tests below look at."""
    run = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["learn", str(some / "few.npz"), "--orbit", "rotation", "--test-fraction", "0.2", "--out", str(run), *QUICK]
    return run, call(*arguments)


def call(*arguments: str):
    return typer_testing.CliRunner().invoke(app, [str(a) for a in arguments])


def test_learn_writes_a_run_and_says_what_it_learned(learned):
    run, result = learned
    assert result.exit_code == 0, result.stderr
    assert "rotations within ±" in result.stdout
    decided = "classification: the targets are 9 distinct whole numbers; --task regression takes them as numbers"
    assert decided in result.stdout
    assert decided in result.stderr
    assert "no invariance" in result.stdout
    assert "test error" in result.stdout
    names = {path.name for path in run.iterdir()}
    assert names == {"config.json", "history.json", "result.json", "baseline.json", "model.safetensors", "report.html"}
    found = json.loads((run / "result.json").read_text())
    assert found["evidence"] > -1e6
    assert found["units"] == {"degrees": "°"}
    assert "--max-steps 12" in found["again"]
    assert "--orbit rotation" in found["again"]
    history = json.loads((run / "history.json").read_text())
    assert [record["step"] for record in history] == sorted(record["step"] for record in history)
    assert "12/24 steps" in result.stderr or "24/24 steps" in result.stderr


@pytest.mark.slow
def test_learn_with_a_feature_map(some):
    words = ["learn", some / "few.npz", "--orbit", "rotation", "--no-baseline", "--feature-map", "framed-gradients", *QUICK]
    result = call(*words, "--out", "run")
    assert result.exit_code == 0, result.stderr
    found = json.loads(Path("run/result.json").read_text())
    assert "--feature-map framed-gradients" in found["again"]
    assert found["feature_map"].startswith("Frame (width ")
    assert "), OrientedGradients (window " in found["feature_map"]
    assert found["feature_map"] in Path("run/report.html").read_text()
    assert " ".join(found["feature_map"].split()) in " ".join(result.stdout.split())
    assert call("predict", "run", some / "few.npz").exit_code == 0


def test_feature_maps_are_for_images(some):
    result = call("learn", some / "table.csv", "--target", "sum", "--feature-map", "gradients", *QUICK)
    assert result.exit_code == 1
    assert "--feature-map gradients is for images, but the inputs have shape (2,)" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ("--feature-map", "gradient"),
        ("--feature-map", "nowhere.py:Map"),
        ("--likelihood", "poisson"),
        ("--max-seconds", "0"),
        ("--device", "abacus"),
    ],
)
def test_a_refused_run_leaves_no_folder(some, words):
    result = call("learn", some / "few.npz", *words, *QUICK, "--out", "run")
    assert result.exit_code == 1
    assert result.stderr.count("error:") == 1
    assert not Path("run").exists()


def test_show_says_it_again(learned):
    run, _ = learned
    result = call("show", run)
    assert result.exit_code == 0
    assert json.loads((run / "result.json").read_text())["summary"] in result.stdout
    assert json.loads(call("show", run, "--json").stdout)["orbit"] == "rotation"


def test_show_opens_the_report(learned, monkeypatch):
    run, _ = learned
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert call("show", run, "--open").exit_code == 0
    assert opened == [(run / "report.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    result = call("show", run, "--open")
    assert result.exit_code == 1
    assert "report.html by hand" in result.stderr


@pytest.mark.slow
def test_the_command_to_run_it_again_says_the_same(learned):
    run, _ = learned
    config = json.loads((run / "config.json").read_text())
    again = call(*shlex.split(config["again"])[1:], "--out", "again", "--quiet")
    assert again.exit_code == 0, again.stderr
    first, second = (InvariantGPClassifier.load(folder / "model.safetensors") for folder in (run, Path("again")))
    assert first.evidence_.value == second.evidence_.value


def test_predict_is_what_the_model_predicts(learned, some, here):
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
def test_predict_refuses_a_file_that_it_would_not_fill_as_named(learned, some, here, words):
    result = call("predict", learned[0], some / "few.npz", *words)
    assert result.exit_code == 2
    assert "json file" in " ".join(result.stderr.replace("│", "").split())
    assert list(here.iterdir()) == []


def test_predict_writes_json_where_the_file_says_so(learned, some):
    assert call("predict", learned[0], some / "few.npz", "--out", "p.JSON").exit_code == 0
    assert len(json.loads(Path("p.JSON").read_text())) == 50


@pytest.mark.slow
def test_a_table_regression_without_baseline(some):
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
def test_a_table_with_ids_words_and_columns_by_name():
    rng = np.random.default_rng(0)
    left, right = rng.normal(50, 5, size=(2, 40))
    rows = "".join(
        f"p{i};{['no', 'yes'][i % 2]};{a};{b};x;{a + b + 3 * (i % 2)}\n"
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    )
    Path("t.csv").write_text("id;smokes;left;right;useless;sum\n" + rows)
    arguments = ["learn", "t.csv", "--target", "sum", "--drop", "useless", "--orbit", "swap(left, right)", "--out", "run"]
    assert "as in --read sep=';'" in call(*arguments).stderr
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


def test_the_source_of_data_is_named_where_it_says_more():
    assert name_and_source(SimpleNamespace(name="shapes", source="shapes")) == "shapes"
    assert name_and_source(SimpleNamespace(name="plants", source="plants.csv")) == "plants (plants.csv)"


def test_noise_is_said_only_in_columns_that_have_a_unit():
    learned = GaussianNoise(0.2).describe()
    noted = "Columns are standardised. In their own units, the noise has a standard deviation of 2.0 in dose."
    assert noise_in_units(learned, ["dose", "site=east"], [(90.0, 10.0), (0.0, 1.0)]) == [noted]
    assert noise_in_units(learned, ["site=east"], [(0.0, 1.0)]) == []
    assert noise_in_units(learned, ["dose"], ()) == []


@pytest.mark.slow
def test_noise_on_standardised_columns_is_said_in_their_units(some):
    result = call("learn", some / "table.csv", "--target", "sum", "--orbit", "noise", "--no-baseline", "-q", "--out", "run")
    assert result.exit_code == 0, result.stderr
    noise = json.loads(Path("run/result.json").read_text())["learned"]["scale"]
    scales = json.loads(Path("run/config.json").read_text())["read_options"]["scales"]
    in_left = f"the noise has a standard deviation of {number(noise * scales[0][1])} in left"
    assert f"Columns are standardised. In their own units, {in_left}" in result.stdout


OWN = """
import torch
from orbitgp.orbits import Orbit

class Slide(Orbit):
    num_draws = 1
    reach = ("width",)

    def __init__(self, width=0.5):
        super().__init__()
        self.width = torch.nn.Parameter(torch.tensor(float(width)))

    def transform(self, x, u):
        return x[:, None] + self.width * (2 * u - 1) * torch.tensor([1.0, -1.0], dtype=x.dtype)

class Half(torch.nn.Module):
    def forward(self, x):
        return x / 2
"""


@pytest.mark.slow
def test_an_orbit_and_a_feature_map_of_ones_own(some, here, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine_own.py").write_text(OWN)
    own = ["--orbit", "mine_own.py:Slide(width=0.3)", "--feature-map", "mine_own.py:Half"]
    result = call(
        "learn", some / "table.csv", "--target", "sum", *own, "--no-baseline", "-q", "--out", "run", "--max-steps", "9"
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(Path("run/result.json").read_text())
    assert list(found["learned"]) == ["width"]
    assert json.loads(Path("run/config.json").read_text())["read_options"]["scales"] is None
    assert f"orbitgp predict run INPUT {shlex.join(own)}" in result.stdout
    refused = call("predict", "run", some / "table.csv")
    assert "name it again, --orbit 'mine_own.py:Slide(width=0.3)'" in refused.stderr
    assert call("predict", "run", some / "table.csv", *own).exit_code == 0
    for text, sentence in {
        "nowhere.py:Slide": "there is no file nowhere.py to take Slide from",
        "mine_own.py:Slip": "has no class Slip that derives from Orbit: it has Slide.",
        "mine_own.py:Half": "has no class Half that derives from Orbit: it has Slide.",
        "mine_own.py:Slide(x)": "must be numbers",
        "mine_own.py:Slide(1, 2)": "is not possible",
        "mine_own.py:Slide*noise": "a class of your own stands alone on the command line",
    }.items():
        assert sentence in call("learn", some / "table.csv", "--target", "sum", "--orbit", text).stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["learn", "--no-baseline"], ["compare", "-o", "none", "-o", "rotation", "--jobs", "1"]])
def test_pixels_beyond_their_range_are_said_once(here, command):
    data = digits()
    np.savez(here / "large.npz", x=1000 * data.x_train[:30], y=data.y_train[:30])
    result = call(command[0], here / "large.npz", *command[1:], *QUICK)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("the pixels") == 1


def test_help_shows_orbits_as_they_are_typed():
    """In Markdown, what stands between two stars is emphasised, and the stars are gone."""
    for command in ("compare", "learn"):
        words = re.sub(r"[│\s]+", " ", call(command, "--help").stdout)
        assert '("affine*deformation")' in words
    assert "gain*offset for signals" in re.sub(r"[│\s]+", " ", call("compare", "--help").stdout)


@pytest.mark.slow
def test_a_lengthscale_for_each_column_in_a_comparison(some):
    limits = ("--max-steps", "5", "--refine-seconds", "0")
    table = (some / "table.csv", "--target", "sum", "-o", "none", "-o", "noise", "--jobs", "1", *limits)
    refused = call("compare", *table, "--ard", "auto")
    assert refused.exit_code == 1
    assert "--ard auto is for orbitgp learn" in refused.stderr
    done = call("compare", *table, "--ard", "yes", "--out", "run")
    assert done.exit_code == 0, done.stderr
    assert InvariantGPRegressor.load("run/model.safetensors").kernel_.base_kernel.lengthscale.numel() == 2


def test_predictions_for_a_table_with_some_targets(some, here):
    learned = call("learn", some / "table.csv", "--target", "sum", "-o", "none", "--max-steps", "5", "--out", "run")
    assert "--ard auto: a lengthscale for each column" in learned.stdout
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


def test_a_warning_is_a_sentence(capsys):
    @print_errors
    def command():
        warnings.simplefilter("always")
        warnings.warn("the sky is falling.")

    command()
    assert capsys.readouterr().err == "warning: the sky is falling.\n"


def test_long_work_is_announced(capsys):
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    settings |= {"device": "cpu", "inference": "auto"}
    print_estimate(load("digits", max_data=50), {"settings": settings}, [Rotation()], quiet=False)
    assert capsys.readouterr().err == ""
    print_estimate(load("digits", max_data=600), {"settings": settings}, [Rotation()], quiet=False)
    said = capsys.readouterr().err
    assert "this will take about" in said
    assert "--max-data 300 would take 20 s" in said
    # What fits took, in seconds of one core: 300 digits with rotations 20, with affine maps more than 258; without an orbit 3.
    for orbits, low, high in (([Affine()], 200, 500), ([Identity(), Rotation()], 18, 34)):
        print_estimate(load("digits", max_data=300), {"settings": settings}, orbits, quiet=False)
        number, unit = re.search(r"about ([0-9]+) (s|minutes)", capsys.readouterr().err).groups()
        assert low <= int(number) * (60 if unit == "minutes" else 1) <= high
    print_estimate(load("digits", max_data=300), {"settings": {**settings, "max_steps": 10}}, [Affine()], quiet=False)
    print_estimate(load("digits", max_data=300), {"settings": {**settings, "max_seconds": 5.0}}, [Affine()], quiet=False)
    assert capsys.readouterr().err == ""
    sparse = {**settings, "inference": "sparse"}
    print_estimate(load("digits", max_data=600), {"settings": sparse}, [Rotation()], quiet=False)
    assert capsys.readouterr().err == ""


def test_what_saves_little_time_is_not_offered(capsys):
    """Most of the time of a fit of few data does not depend on their number."""
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    config = {"settings": settings | {"device": "cpu", "inference": "auto"}}
    data = load("digits", max_data=100)
    for repeats in (1, 30):
        print_estimate(data, config, [Affine()] * repeats, quiet=False)
        said = capsys.readouterr().err
        assert re.fullmatch(r"this will take about \d+ (s|minutes) on a free machine\n", said), said
    few = replace(data, x_test=None, y_test=None, y_train=data.y_train[:60], x_train=np.zeros((60, 3, 200, 200)))
    large = replace(few, read_options=replace(data.read_options, colour="RGB"))
    print_estimate(large, config, [Affine()], quiet=False)
    said = capsys.readouterr().err
    assert "--resize 32x32 would take" in said
    assert "--max-data" not in said


@pytest.mark.slow
def test_a_lengthscale_for_each_column_where_the_evidence_asks_for_it():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    rows = "".join(f"{a},{b},{c},{np.sin(1.5 * a) + 0.05 * rng.normal()}\n" for a, b, c in x)  # of one column only
    Path("t.csv").write_text("a,b,c,y\n" + rows)
    arguments = ["learn", "t.csv", "--target", "y", "--orbit", "none", "-q"]
    result = call(*arguments, "--ard", "auto", "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert "A lengthscale for each column is used: +" in result.stdout
    assert "--ard is for" in call("learn", "digits", "--ard", "yes").stderr
    alone = call(*arguments, "--out", "alone")
    assert alone.exit_code == 0
    evidence = [json.loads(Path(run, "result.json").read_text())["evidence"] for run in ("run", "alone")]
    assert evidence[0] > evidence[1] + 3


@pytest.mark.slow
def test_a_table_with_missing_targets_without_its_holes(some):
    words = ["learn", some / "holes.csv", "--target", "sum", "--drop-missing", "--task", "regression", "--no-baseline", *QUICK]
    result = call(*words, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert "note: 1 of 41 rows have missing values and are left out." in result.stderr
    assert "regression of column 'sum' (--target): as --task says" in result.stdout
    assert "--drop-missing --task regression" in json.loads(Path("run/result.json").read_text())["again"]
    predicted = call("predict", "run", some / "holes.csv")
    assert len(predicted.stdout.splitlines()) == 42


@pytest.mark.slow
def test_compare_ranks_and_keeps_the_best(some):
    orbits = ["-o", "none", "-o", "swap(0,1)", "-o", "noise"]
    budget = ["--refine-seconds", "0", "--jobs", "1", "-m", "8", "--max-steps", "12", "--num-samples", "4"]
    curve = ["--profile", "scale", "--profile-values", "0.1,1"]
    result = call("compare", some / "table.csv", "--target", "sum", *orbits, *budget, *curve)
    assert result.exit_code == 0, result.stderr
    assert "behind the best" in result.stdout
    assert "The evidence over scale of noise" in result.stdout
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
    assert found["profile"]["values"] == [0.1, 1.0]
    assert "--profile scale --profile-values 0.1,1" in found["again"]
    assert "--refine-seconds 0" in found["again"]
    assert call("predict", run, some / "table.csv").exit_code == 0
    assert found["comparison"]["verdict"] in call("show", run).stdout


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
        (["compare", "FEW", "-o", "none", "-o", "rotation", "--profile", "scale"], "no orbit here has a quantity 'scale'"),
        (["predict", "nowhere", "FEW"], "there is no run folder nowhere"),
        (["predict", "RUN", "nowhere.npy"], "there is no file or folder nowhere.npy"),
        (["predict", "RUN", "TABLE"], "have shape (3,), but the model was trained on inputs of shape (8, 8)"),
        (["show", "."], "is not a run folder"),
        (["data", "imagenet"], "there is no data set 'imagenet'"),
    ],
)
def test_errors_are_one_sentence(arguments, sentence, some, learned, here):
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
def test_usage_errors(arguments):
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_help_is_there_for_every_command():
    for command in ("learn", "compare", "predict", "show", "data"):
        result = call(command, "--help")
        assert result.exit_code == 0
        assert f"orbitgp {command}" in result.stdout
    assert "which invariance do the data support?" in call("--help").stdout
    assert call("--version").stdout.startswith("orbitgp ")


def test_data_are_listed():
    assert "mnist" in call("data").stdout
    assert json.loads(call("data", "digits", "--json").stdout)["train"] == 1347


def test_a_damaged_run_is_one_sentence(learned, here):
    run = here / "copy"
    run.mkdir()
    (run / "config.json").write_text("{")
    result = call("show", run)
    assert result.exit_code == 1
    assert "is damaged" in result.stderr
    config = (learned[0] / "config.json").read_text()
    (run / "config.json").write_text(config)
    (run / "model.safetensors").write_bytes((learned[0] / "model.safetensors").read_bytes()[:-100])
    np.save("new.npy", digits().x_test[:2])
    result = call("predict", run, "new.npy")
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "0 of 12 steps" in call("show", run).stdout


@pytest.mark.slow
def test_a_full_disk_keeps_the_model_and_says_which_file_is_missing(some, monkeypatch):
    write = Path.write_text

    def full(path, *rest, **named):
        if "report" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        result = call("learn", some / "few.npz", "--no-baseline", "--out", "run", *QUICK)
    assert result.exit_code == 1
    assert f"error: {Path('run/report.html')}: No space left on device." in result.stderr
    assert not Path("run/result.json").exists()
    assert Path("run/model.safetensors").exists()
    resumed = call("learn", "--resume", "run")
    assert resumed.exit_code == 0, resumed.stderr
    assert Path("run/report.html").exists()


def test_progress_in_plain_lines(capsys):
    with Progress(1, 20, {"degrees": "°"}) as progress:
        progress.record("rotation", {"step": 20, "bound": 1234.5, "orbit": {"degrees": 17.2, "elements": 2.0}})
    line = capsys.readouterr().err
    assert line.startswith("rotation: 20/20 steps")
    assert "bound 1,234" in line
    assert "degrees ±17°" in line
    assert "left" in line
    with Progress(1, 20, quiet=True) as progress:
        progress.record("rotation", {"step": 20, "bound": 1.0, "orbit": {}})
    assert capsys.readouterr().err == ""


def test_the_limit_of_an_exact_run_tells_no_time(capsys):
    with Progress(1, 20) as progress:
        progress.record("rotation", {"step": 20, "bound": 1.0, "orbit": {}, "rows": 30})
    line = capsys.readouterr().err
    assert line.startswith("rotation: 20/20 steps at most, 00:00, bound 1")
    assert "left" not in line


@pytest.mark.slow
def test_compare_orbits_whose_arguments_are_written_with_spaces(some):
    data = [some / "table.csv", "--target", "sum"]
    result = call(
        "compare", *data, "-o", "none", "-o", "swap(0, 1)", "--refine-seconds", "0", "-j", "1", "--out", "run", *QUICK
    )
    assert result.exit_code == 0, result.stderr
    assert "swap(0,1)" in result.stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_workers_are_counted_in_models(stream, monkeypatch):
    """Their records come all at once when a model is done: a time left that rests on them would be wrong."""
    monkeypatch.setattr("orbitgp.cli.progress._EVERY", 0.0)
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    jobs = [Job("rotation", Identity(), seed, InvariantGPClassifier) for seed in (0, 1)]
    with Progress(3, 20, live=False) as progress:
        progress.bar.mininterval = 0.0
        for job in jobs:
            progress.watch(job, {"step": 20, "bound": 1.0, "orbit": {}})
            progress.watch(job, None)
    text = shown.getvalue()
    assert "rotation, seed 0: " in text
    assert "1 of 3 models done" in text
    assert "rotation, seed 1: " in text
    assert "2 of 3 models done" in text
    assert "left" not in text


def test_the_time_goes_on_while_workers_are_silent(capsys, monkeypatch):
    monkeypatch.setattr("orbitgp.cli.progress._EVERY", 0.0)
    with Progress(2, None, live=False):
        time.sleep(1.2)
    assert "0 of 2 models done, 00:01" in capsys.readouterr().err


def test_the_time_goes_on_until_there_is_a_first_record(capsys, monkeypatch):
    """A sparse run chooses its start for minutes, and has no record until then."""
    monkeypatch.setattr("orbitgp.cli.progress._EVERY", 0.0)
    with Progress(1, None) as progress:
        time.sleep(1.2)
        progress.record("rotation", {"step": 1, "bound": 2.0, "orbit": {}})
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "0 steps, 00:01, choosing a start"
    assert last == "rotation: 1 steps, 00:01, bound 2"


def run(*arguments: str, **options):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "orbitgp", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def test_without_typer_one_sentence(here):
    (here / "typer.py").write_text("raise ImportError('not here')")
    process = run("--help", env={"PYTHONPATH": str(here)})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert out == ""
    assert "pip install 'orbitgp[cli]'" in err
    assert "Traceback" not in err


def press_ctrl_c(monkeypatch, kind: type, method: str, time: int) -> None:
    """Ctrl-C at the so manieth call of a method, once."""
    calls, original = iter(range(1, 10**6)), getattr(kind, method)

    def interrupted(*args):
        if next(calls) == time:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args)

    monkeypatch.setattr(kind, method, interrupted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "inference"),
    [
        pytest.param(QuasiNewton, "_objective", [], id="exact"),
        pytest.param(CollapsedClimb, "_objective", ["-m", "12", "--inference", "sparse"], id="sparse, few data"),
        pytest.param(StochasticSteps, "step", ["-m", "12", "--batch-size", "20"], id="sparse, batches"),
    ],
)
def test_ctrl_c_while_a_start_is_chosen_can_be_resumed(kind, method, inference, some, monkeypatch):
    limits = ["--max-steps", "20", "-q", "--no-baseline"]
    arguments = ["learn", some / "few.npz", "--orbit", "rotation", "--max-data", "30", *limits, *inference]
    assert call(*arguments, "--out", "whole").exit_code == 0
    whole = json.loads(Path("whole/result.json").read_text())
    for moment in (1, 7):
        folder = f"stopped-{moment}"
        with monkeypatch.context() as patch:
            press_ctrl_c(patch, kind, method, moment)
            stopped = call(*arguments, "--out", folder)
        assert stopped.exit_code == 130
        assert f"orbitgp learn --resume {folder}" in stopped.stderr
        assert "None" not in stopped.stderr
        resumed = call("learn", "--resume", folder, "-q")
        assert resumed.exit_code == 0, resumed.stderr
        result = json.loads(Path(folder, "result.json").read_text())
        assert result["learned"] == whole["learned"]
        assert result["steps"] == whole["steps"]
        assert call("learn", "--resume", folder).exit_code == 1  # now it is finished


@pytest.mark.slow
def test_ctrl_c_in_the_baseline_keeps_the_model_and_can_be_resumed(some, monkeypatch):
    arguments = ["learn", some / "table.csv", "--target", "sum", "--orbit", "swap(0, 1)", "-q", "--out", "stopped"]
    with monkeypatch.context() as patch:
        begin = QuasiNewton.__post_init__

        def only_without_orbit(self):
            begin(self)
            if isinstance(self.model.orbit, Identity):
                press_ctrl_c(patch, QuasiNewton, "_objective", 2)

        patch.setattr(QuasiNewton, "__post_init__", only_without_orbit)
        stopped = call(*arguments)
    assert stopped.exit_code == 130
    assert "before the end of the model without invariance: go on with orbitgp learn --resume stopped" in stopped.stderr
    resumed = call("learn", "--resume", "stopped", "-q")
    assert resumed.exit_code == 0, resumed.stderr
    assert "no invariance" in resumed.stdout
    assert not Path("stopped/checkpoint.safetensors").exists()


@pytest.mark.slow
def test_ctrl_c_in_a_comparison_keeps_the_models_that_are_done(some, monkeypatch):
    data = ["compare", some / "table.csv", "--target", "sum", "-o", "none", "-o", "swap(0,1)", "-j", "1", "-q"]
    trained = []

    def counted(job, *args, **kwargs):
        trained.append(job.name)
        if len(trained) == 2:
            press_ctrl_c(patch, QuasiNewton, "_objective", 2)
        return train(job, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("orbitgp.comparison.parallel.train", counted)
        stopped = call(*data, "--out", "stopped")
    assert stopped.exit_code == 130, stopped.stderr
    assert "models that are done (1) are kept: go on with orbitgp compare --resume stopped" in stopped.stderr
    assert "1 model done" in call("show", "stopped").stdout
    second = trained[1]
    trained.clear()
    with monkeypatch.context() as patch:
        patch.setattr("orbitgp.comparison.parallel.train", lambda job, *a, **k: trained.append(job.name) or train(job, *a, **k))
        resumed = call("compare", "--resume", "stopped", "-q")
    assert resumed.exit_code == 0, resumed.stderr
    assert trained == [second]
    assert not Path("stopped/models").exists()
    assert call(*data, "--out", "whole").exit_code == 0
    results = [json.loads(Path(folder, "result.json").read_text())["comparison"] for folder in ("stopped", "whole")]
    rows = [{row["orbit"]: row["evidence"] for row in result["rows"]} for result in results]
    assert rows[0] == rows[1]
    assert results[0]["verdict"] == results[1]["verdict"]
    assert "is finished" in call("compare", "--resume", "stopped").stderr


def test_a_comparison_that_fails_leaves_nothing(some, here):
    result = call(
        "compare", some / "few.npz", "-o", "none", "-o", "flip", "-j", "1", "-q", "--likelihood", "cauchy", "--out", "run"
    )
    assert result.exit_code == 1
    assert list(here.iterdir()) == []


def test_a_disk_without_room_is_refused_before_training(some, here, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10**6))
    for command in ("learn", "compare"):
        result = call(command, some / "few.npz", "--out", "run", *QUICK)
        assert result.exit_code == 1
        assert "lies on a disk with 1 MB free, and the run needs about" in result.stderr
    assert list(here.iterdir()) == []


def test_a_model_that_cannot_be_written_goes_elsewhere(some, here, monkeypatch):
    save = InvariantGPRegressor.save

    def full(self, path):
        if Path(path).parent.name == "run":
            raise OSError(28, "No space left on device")
        save(self, path)

    monkeypatch.setattr(InvariantGPRegressor, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(here))
    result = call("learn", some / "table.csv", "--target", "sum", "-q", "-o", "none", "--out", "run")
    assert result.exit_code == 1
    (elsewhere,) = here.glob("orbitgp-*/model.safetensors")
    assert f"the model is in {elsewhere}" in result.stderr
    assert InvariantGPRegressor.load(elsewhere).evidence_.num_data == 40


@pytest.mark.slow
def test_a_disk_that_fills_up_before_the_model_without_invariance_is_done(some, here, monkeypatch):
    save, write = InvariantGPRegressor.save, RunFolder.write_json

    def full(self, path, *args):
        if Path(path).name in ("baseline.json", "model.safetensors") and Path(path).parent.name == "run":
            raise OSError(28, "No space left on device", str(path))
        (write if isinstance(self, RunFolder) else save)(self, path, *args)

    monkeypatch.setattr(RunFolder, "write_json", lambda self, path, content, new=False: full(self, path, content, new))
    monkeypatch.setattr(InvariantGPRegressor, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(here))
    result = call("learn", some / "table.csv", "--target", "sum", "-q", "-o", "swap(0, 1)", "--out", "run")
    assert result.exit_code == 1
    (elsewhere,) = here.glob("orbitgp-*/model.safetensors")
    assert f"the model is in {elsewhere}" in result.stderr


def test_the_time_left_of_a_resumed_run_counts_its_own_steps_only(capsys):
    with Progress(1, 1000) as progress:
        progress.begin_at("rotation", 900)
        progress.bar.start_t -= 10.0
        progress.bar.last_print_t -= 10.0
        progress.record("rotation", {"step": 910, "bound": 1.0, "orbit": {}})
        assert progress.bar.n == 910
        assert "01:3" in str(progress.bar)  # 90 steps, one a second
    capsys.readouterr()


def test_the_first_line_does_not_wait_for_torch():
    """Nor do a help page and the completion of the shell."""
    code = "import sys, orbitgp.cli.app; print(*{'torch', 'sklearn', 'gpytorch', 'scipy', 'matplotlib'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


@pytest.mark.slow
def test_ctrl_c_ends_a_comparison_and_leaves_nothing(some, here):
    arguments = ["compare", str(some / "few.npz"), "--jobs", "2", "--max-steps", "5000", "--out", "stopped"]
    process = run(*arguments)
    assert "reading" in process.stderr.readline()
    assert "classification: the targets are" in process.stderr.readline()
    assert "3 models of 5000 steps, 2 at a time" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert err.strip() == "stopped."
    assert list(here.iterdir()) == []  # no model was done


@pytest.mark.slow
def test_ctrl_c_keeps_the_model_and_resume_ends_where_it_would_have(some, here):
    arguments = ["learn", str(some / "few.npz"), "--orbit", "rotation", "--no-baseline", "-m", "12", "--num-samples", "4"]
    arguments += ["--batch-size", "40", "--max-steps", "60"]
    process = run(*arguments, "--out", "stopped")
    checkpoint = here / "stopped" / "checkpoint.safetensors"
    while not checkpoint.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "orbitgp learn --resume stopped" in err
    assert "Traceback" not in err
    assert (here / "stopped" / "model.safetensors").exists()
    steps = json.loads((here / "stopped" / "result.json").read_text())["steps"]
    assert steps < 60
    resumed = call("learn", "--resume", "stopped")
    assert resumed.exit_code == 0, resumed.stderr
    assert not checkpoint.exists()
    assert call(*arguments, "--out", "whole").exit_code == 0
    a, b = (InvariantGPClassifier.load(here / name / "model.safetensors") for name in ("stopped", "whole"))
    x = digits().x_test[:20]
    np.testing.assert_array_equal(a.predict_proba(x), b.predict_proba(x))


def test_runs_side_by_side_have_folders_of_their_own(here):
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: create(None, "data.npz", "flip").path, range(40)))
    assert len(set(folders)) == 40


def test_a_folder_belongs_to_the_first_run_that_claims_it(here):
    first, second = (create(here / "run", "data.npz", "flip") for _ in range(2))
    claim(first, {"command": "learn"})
    with pytest.raises(FileExistsError, match="exists already: choose another --out"):
        claim(second, {"command": "compare"})
    assert first.config.read_text() == json.dumps({"command": "learn"}, indent=1) + "\n"


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"command": 3}', '{"command": "learn"}'])
def test_a_configuration_that_is_none_is_one_sentence(here, text):
    (here / "run").mkdir()
    (here / "run/config.json").write_text(text)
    folder = RunFolder.open(here / "run")
    with pytest.raises(ValueError, match=r"config\.json is damaged: .*\.$"):
        folder.read_config()


def test_errors_do_not_steer_the_terminal():
    assert _sentence(ValueError("\x1b[2Jgone")) == "\ufffd[2Jgone."


def test_test_cases_of_classes_not_trained_on_are_errors():
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


def test_some_of_the_data_are_of_the_same_task_as_all():
    Path("some.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i % 3}" for i in range(30))]))
    result = call("learn", "some.csv", "--max-data", "5", "--no-baseline", *QUICK, "--out", "run")
    assert result.exit_code == 0, result.stderr
    assert json.loads(Path("run/config.json").read_text())["task"] == "classification"


def test_arrays_of_another_shape_are_refused_where_columns_are_standardised():
    Path("some.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i / 3}" for i in range(12))]))
    assert call("learn", "some.csv", "--no-baseline", *QUICK, "--out", "run").exit_code == 0
    np.save("three.npy", np.zeros((4, 3)))
    result = call("predict", "run", "three.npy")
    assert result.exit_code == 1
    assert "the inputs in three.npy have shape (3,), but those of training (2,)." in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("row", "sentence"), [("1e200,1,1", "column 'a' holds numbers so large"), ("1,1,1e200", "the targets are so large")]
)
def test_numbers_whose_variance_is_infinite_are_refused(row, sentence):
    Path("large.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 7},{i / 3}" for i in range(12)), row]))
    result = call("learn", "large.csv", "--no-baseline", *QUICK, "--out", "run")
    assert result.exit_code == 1
    assert sentence in " ".join(result.stderr.split())
    assert "warning" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["learn", "words.csv", "--task", "regression"], "regression needs numbers, but the targets are words, such as a."),
        (["learn", "t.csv", "--task", "classification"], "classification needs classes, but the targets are decimals, such as"),
        (["learn", "t.csv", "--interval", "2nm"], "--interval is for signals: say that the rows are signals, with --signal."),
        (["learn", "t.csv", "--test-fraction", "0.01"], "a test fraction of 0.01 leaves none of 12 rows to test: take more."),
        (
            ["compare", "t.csv", "-o", "none", "-o", "noise", "--profile", "scale", "--profile-values", "0,0.1"],
            "--profile-values: noise(scale=0.0, learn=False) is not possible: scale must be positive",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(arguments, sentence):
    rows = [f"{i},{i % 5},{i / 7}" for i in range(12)]
    Path("t.csv").write_text("\n".join(["a,b,target", *rows]))
    Path("words.csv").write_text("\n".join(["a,b,target", *(f"{i},{i % 5},{'ab'[i % 2]}" for i in range(12))]))
    result = call(*arguments, "--out", "run")
    assert result.exit_code != 0
    assert sentence in " ".join(result.stderr.split())
    assert not Path("run").exists()


def test_predictions_of_numbers_have_no_classes_and_words_no_error():
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


def test_one_picture_that_cannot_be_read_stops_nothing_unless_asked_to():
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


def test_an_end_that_the_data_do_not_limit_is_null_in_the_result(monkeypatch):
    rows = [f"{i},{i % 5},{i / 7}" for i in range(12)]
    Path("t.csv").write_text("\n".join(["a,b,target", *rows]))
    found = {"scale": (Quantity(0.01), Quantity(inf))}
    monkeypatch.setattr("orbitgp.estimators.base.plausible_ranges", lambda climber: found)
    assert call("learn", "t.csv", "--orbit", "noise", "--no-baseline", "--out", "run").exit_code == 0
    assert json.loads(Path("run/result.json").read_text(), parse_constant=pytest.fail)["plausible"] == {"scale": [0.01, None]}
    assert "(plausible at least 0.010, not determined above)" in call("show", "run").stdout
