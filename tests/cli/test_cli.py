"""The command line: what it writes, what it says, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

typer_testing = pytest.importorskip("typer.testing")

from orbitgp import InvariantGPClassifier  # noqa: E402
from orbitgp.cli.app import app  # noqa: E402
from orbitgp.cli.progress import Progress  # noqa: E402
from orbitgp.comparison.parallel import Job  # noqa: E402
from orbitgp.datasets import digits  # noqa: E402
from orbitgp.orbits import Identity  # noqa: E402

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
    assert "Insensitive to rotations within ±" in result.stdout
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
    words = ["learn", some / "few.npz", "--orbit", "rotation", "--no-baseline", "--feature-map", "gradients", *QUICK]
    result = call(*words, "--out", "run")
    assert result.exit_code == 0, result.stderr
    found = json.loads(Path("run/result.json").read_text())
    assert "--feature-map gradients" in found["again"]
    assert "OrientedGradients" in Path("run/report.html").read_text()
    assert call("predict", "run", some / "few.npz").exit_code == 0


def test_feature_maps_are_for_images(some):
    result = call("learn", some / "table.csv", "--target", "sum", "--feature-map", "gradients", *QUICK)
    assert result.exit_code == 1
    assert "--feature-map gradients is for images, but the inputs have shape (2,)" in " ".join(result.stderr.split())


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
        *QUICK[:2],
        "--max-steps",
        "15",
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["summary"] == "Insensitive to exchanges of coordinates."
    assert found["evidence_without_invariance"] is None
    assert found["task"] == "regression of column 'sum' (--target): the targets are numbers"
    assert "--no-baseline" in found["again"]
    assert found["folder"] == os.path.join("runs", "table-swap-0-1")
    assert result.stderr == ""
    Path("new.csv").write_text("right,left\n1,0.5\n-1,2\n")
    predicted = call("predict", found["folder"], "new.csv")
    assert predicted.stdout.splitlines()[0] == "input,mean,std"
    assert len(predicted.stdout.splitlines()) == 3


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
        (["learn", "HOLES", "--target", "sum"], "the target column 'sum' of"),
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
    assert all("the targets are" in line for line in before)  # how the task was decided, and nothing else
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


def test_importing_orbitgp_needs_neither_typer_nor_torch():
    code = "import sys, orbitgp; print(sorted({'typer', 'torch', 'matplotlib'} & set(sys.modules))); orbitgp.orbits"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_ctrl_c_ends_a_comparison_and_leaves_nothing(some, here):
    arguments = ["compare", str(some / "few.npz"), "--jobs", "2", "--max-steps", "5000", "--out", "stopped"]
    process = run(*arguments)
    assert "classification: the targets are" in process.stderr.readline()
    assert "models of 5000 steps at most, 2 at a time" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert err.strip() == "stopped."
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_keeps_the_model_and_resume_ends_where_it_would_have(some, here):
    arguments = ["learn", str(some / "few.npz"), "--orbit", "rotation", "--no-baseline", "-m", "12", "--num-samples", "4"]
    arguments += ["--batch-size", "40", "--max-steps", "200"]
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
    assert steps < 200
    resumed = run("learn", "--resume", "stopped")
    _, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert not checkpoint.exists()
    whole = run(*arguments, "--out", "whole")
    whole.communicate(timeout=300)
    a, b = (InvariantGPClassifier.load(here / name / "model.safetensors") for name in ("stopped", "whole"))
    x = digits().x_test[:20]
    np.testing.assert_array_equal(a.predict_proba(x), b.predict_proba(x))
