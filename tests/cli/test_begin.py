"""How runs begin and stop: folders, disks that are full, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp.comparison.parallel import Trained
from orbitgp.training.run import Engine

pytest.importorskip("typer")

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.cli import main
from orbitgp.cli.run import Run as CommandRun
from orbitgp.cli.run import read_json
from orbitgp.comparison.parallel import train
from orbitgp.datasets import digits
from orbitgp.orbits import Identity
from orbitgp.training.ladder import Ladder
from orbitgp.training.run import Run
from orbitgp.training.stochastic_steps import StochasticSteps
from tests import new_process
from tests.cli.calling import QUICK, call, press_ctrl_c


@pytest.mark.parametrize(
    "words",
    [
        ("--feature-map", "gradient"),
        ("--likelihood", "poisson"),
        ("--max-seconds", "0"),
        ("--device", "abacus"),
    ],
)
def test_a_refused_run_leaves_no_folder(some: Path, words: tuple[str, str]) -> None:
    result = call("learn", some / "few.npz", *words, *QUICK, "--out", "run")
    assert result.exit_code == 1
    assert result.stderr.count("error:") == 1
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_a_full_disk_keeps_the_model_and_says_which_file_is_missing(
    some: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, *rest: Any, **named: Any) -> int:
        if "report" in path.name:
            raise OSError(28, "No space left on device")
        return write(path, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        words = ["learn", some / "few.npz", "--orbit", "rotation", "--max-data", "20", "--no-baseline"]
        result = call(*words, "--out", "run", *QUICK)
    assert result.exit_code == 1
    assert f"error: {Path('run/report.html')}: No space left on device." in result.stderr
    assert not Path("run/result.json").exists()
    assert Path("run/model.safetensors").exists()
    resumed = call("learn", "--resume", "run")
    assert resumed.exit_code == 0, resumed.stderr
    assert Path("run/report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method", "moments", "inference"),
    [
        pytest.param(Run, "evaluate", (1, 7), [], id="exact"),
        pytest.param(Run, "evaluate", (7,), ["-m", "12", "--inference", "sparse"], id="sparse, few data"),
        pytest.param(StochasticSteps, "step", (6,), ["-m", "12", "--batch-size", "10"], id="sparse, batches"),
    ],
)
def test_ctrl_c_can_be_resumed_and_ends_where_it_would_have(
    kind: type[Engine],
    method: str,
    moments: tuple[int, ...],
    inference: list[str],
    some: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a start is chosen, and in the middle of stochastic steps."""
    limits = ["--max-steps", "10", "-q", "--no-baseline"]
    arguments = ["learn", some / "few.npz", "--orbit", "rotation", "--max-data", "20", *limits, *inference]
    assert call(*arguments, "--out", "whole").exit_code == 0
    whole = json.loads(Path("whole/result.json").read_text())
    x = digits().x_test[:20]
    for moment in moments:
        folder = f"stopped-{moment}"
        with monkeypatch.context() as patch:
            press_ctrl_c(patch, kind, method, moment)
            stopped = call(*arguments, "--out", folder)
        assert stopped.exit_code == 130
        assert f"orbitgp learn --resume {folder}" in stopped.stderr
        assert "None" not in stopped.stderr
        assert Path(folder, "model.safetensors").exists()
        refused = call("learn", "--resume", folder, "--max-seconds", "9", "--orbit", "shear")
        assert "leave out --max-seconds, --orbit, or begin another run" in refused.stderr
        resumed = call(*arguments, "--resume", folder, "-q")  # the same options as before
        assert resumed.exit_code == 0, resumed.stderr
        assert not Path(folder, "checkpoint.safetensors").exists()
        result = json.loads(Path(folder, "result.json").read_text())
        assert result["learned"] == whole["learned"]
        assert result["steps"] == whole["steps"]
        one, other = (InvariantGPClassifier.load(Path(name, "model.safetensors")) for name in (folder, "whole"))
        np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x))
        assert call("learn", "--resume", folder).exit_code == 1  # now it is finished


@pytest.mark.slow
def test_ctrl_c_in_the_baseline_keeps_the_model_and_can_be_resumed(some: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["learn", some / "table.csv", "--target", "sum", "--orbit", "swap(0, 1)", "-q", "--out", "stopped"]
    arguments += ["--max-steps", "6"]
    with monkeypatch.context() as patch:
        begin = Ladder.__post_init__

        def only_without_orbit(self: Any) -> None:
            begin(self)
            if isinstance(self.model.orbit, Identity):
                press_ctrl_c(patch, Run, "evaluate", 2)

        patch.setattr(Ladder, "__post_init__", only_without_orbit)
        stopped = call(*arguments)
    assert stopped.exit_code == 130
    assert "before the end of the model without invariance: go on with orbitgp learn --resume stopped" in stopped.stderr
    resumed = call("learn", "--resume", "stopped", "-q")
    assert resumed.exit_code == 0, resumed.stderr
    assert "no invariance" in resumed.stdout
    assert not Path("stopped/checkpoint.safetensors").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_ctrl_c_in_a_comparison_keeps_the_models_that_are_done(some: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ["compare", some / "table.csv", "--target", "sum", "-o", "none", "-o", "swap(0,1)"]
    data += ["--ard", "no", "-j", "1", "-q", "--max-steps", "6", "--refine-seconds", "0"]
    trained = []

    def counted(job: Any, *args: Any, **kwargs: Any) -> Trained:
        trained.append(job.name)
        if len(trained) == 2:
            press_ctrl_c(patch, Run, "evaluate", 2)
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
        patch.setattr(
            "orbitgp.comparison.parallel.train", lambda job, *a, **k: trained.append(job.name) or train(job, *a, **k)
        )
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


def test_a_comparison_that_fails_leaves_nothing(some: Path, here: Path) -> None:
    result = call(
        "compare",
        some / "few.npz",
        "-o",
        "none",
        "-o",
        "flip",
        "-j",
        "1",
        "-q",
        "--likelihood",
        "cauchy",
        "--out",
        "run",
    )
    assert result.exit_code == 1
    assert list(here.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_a_comparison_and_leaves_nothing(some: Path, here: Path) -> None:
    arguments = ["compare", str(some / "few.npz"), "--jobs", "2", "--max-steps", "5000", "--out", "stopped"]
    err = some / "stderr"
    process = new_process.start(typed, arguments, str(here), str(err))
    begun = "3 models of 5000 steps, 2 at a time"
    until = time.monotonic() + 120
    while not (err.exists() and begun in err.read_text()):
        assert process.is_alive()
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(300)
    said = err.read_text()
    assert process.exitcode == 130, said
    first, second, third, last = said.splitlines()
    assert "reading" in first
    assert "classification: the targets are" in second
    assert begun in third
    assert last == "stopped."
    assert list(here.iterdir()) == []  # no model was done


def typed(arguments: list[str], folder: str, err: str) -> None:
    """As from a terminal, but that workers begin with a memory that has all imports."""
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = ["orbitgp", *arguments]
    with new_process.workers_of_loky():
        main()


@pytest.mark.slow
def test_ctrl_c_ends_an_exact_fit_within_seconds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The posterior of all 10,000 rows alone takes longer than that."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10_000, 3))
    np.savez(here / "many.npz", x=x, y=np.sin(x).sum(1) + 0.1 * rng.normal(size=10_000))
    with monkeypatch.context() as patch:
        pressed = press_ctrl_c(patch, Run, "evaluate", 3)
        stopped = call("learn", "many.npz", "--orbit", "noise", "--out", "stopped")
    assert stopped.exit_code == 130, stopped.stderr
    assert time.process_time() - pressed[0] < 10
    assert "Stopped after" in stopped.stdout
    assert "orbitgp learn --resume stopped" in stopped.stderr
    shown = call("show", "stopped").stdout
    assert "go on            orbitgp learn --resume stopped" in shown
    model = InvariantGPRegressor.load(here / "stopped" / "model.safetensors")
    assert np.abs(model.predict(x[:50]) - np.sin(x[:50]).sum(1)).mean() < 0.3


def write_table(path: str, **columns: Any) -> None:
    rows = zip(*columns.values(), strict=True)
    Path(path).write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n")


def chosen(folder: str) -> list[str]:
    return json.loads(Path(folder, "config.json").read_text())["orbits"]


@pytest.mark.usefixtures("one_start")
def test_without_an_orbit_a_table_gets_a_model_of_its_columns_and_a_hint() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.gamma(2, 3, (2, 60))
    tilt, age = rng.normal(0, 0.1, 60), rng.normal(50, 9, 60)
    kind = np.array(["u", "v"])[rng.integers(2, size=60)]
    write_table("t.csv", left=left, right=right, tilt=tilt, age=age, kind=kind, y=left + right)
    result = call("learn", "t.csv", "--out", "run", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert chosen("run") == ["none"]
    hint = "note: orbitgp compare tells whether these columns have an invariance: "
    (line,) = (line for line in result.stderr.splitlines() if line.startswith(hint))
    assert set(line.removeprefix(hint).rstrip(".").split(", s")) == {"swap(left, right)", "ign(tilt)"}
    compared = call("compare", "t.csv", "--out", "compared", "--refine-seconds", "0", "-j", "1", "-q", *QUICK)
    assert compared.exit_code == 0, compared.stderr
    assert set(chosen("compared")) == {"none", "swap(left, right)", "sign(tilt)"}
    scales = json.loads(Path("compared/config.json").read_text())["read_options"]["scales"]
    assert scales[0] == scales[1]
    assert scales[2] == pytest.approx([0.0, tilt.std()])


def test_a_table_without_like_columns_has_nothing_to_compare_by_itself(here: Path) -> None:
    rng = np.random.default_rng(0)
    write_table("t.csv", a=rng.normal(5, 1, 40), b=rng.normal(90, 1, 40), y=rng.normal(size=40))
    result = call("compare", "t.csv", "--out", "run")
    assert result.exit_code == 1
    assert "error: no two columns look alike, and none is symmetric about zero: orbitgp learn" in result.stderr
    assert not (here / "run").exists()


@pytest.mark.usefixtures("one_start")
def test_arrays_of_vectors_are_tables_without_names() -> None:
    x = np.random.default_rng(0).gamma(2, 3, (50, 3)) + [0, 0, 90]
    np.savez("t.npz", x=x, y=x.sum(1))
    result = call("learn", "t.npz", "--out", "run", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert chosen("run") == ["none"]
    assert "these columns have an invariance: swap(0, 1)." in result.stderr


def test_noise_is_for_numbers() -> None:
    words = np.array(["u", "v", "w"])[np.arange(30) % 3]
    write_table("t.csv", kind=words, one=np.ones(30), y=np.arange(30) / 7)
    result = call("learn", "t.csv", "--orbit", "noise", "--out", "run")
    assert "error: noise is for columns of numbers that vary, and this table has none." in result.stderr


CONFIG = {"command": "learn", "data": {"data": "data.npz"}, "orbit": "flip"}


def test_runs_side_by_side_have_folders_of_their_own(here: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: CommandRun.create(None, CONFIG).path, range(40)))
    assert len(set(folders)) == 40


def test_a_folder_belongs_to_the_first_run_that_claims_it(here: Path) -> None:
    (here / "run").mkdir()
    first, second = (CommandRun(here / "run", {**CONFIG, "command": command}) for command in ("learn", "compare"))
    first.claimed()
    with pytest.raises(FileExistsError, match="exists already: choose another --out"):
        second.claimed()
    assert read_json(here / "run/config.json") == {**CONFIG, "command": "learn"}


def test_a_folder_whose_configuration_cannot_be_written_stays_free(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (here / "run").mkdir()
    run = CommandRun(here / "run", CONFIG)
    monkeypatch.setattr("orbitgp.saving.container.write_json", fails)
    with pytest.raises(OSError, match="No space left"):
        run.claimed()
    assert not list((here / "run").iterdir())
