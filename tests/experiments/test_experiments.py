"""Experiments, at a size that says nothing about digits: runs leave records, tables and claims follow from these."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import __main__ as command
from experiments import (
    augmentation,
    demo,
    exact,
    figure1,
    harness,
    mnist,
    reproduce_small,
    rotated_mnist,
    small_data,
    tables,
    toy,
)
from orbitgp.orbits import Affine, Rotate90
from tests import new_process

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_leaves_a_record_and_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Any) -> None:
    path = tmp_path / "new" / "mnist.jsonl"
    todo = mnist.all_runs(2, ["none", "affine"], num_train=24, **tiny)
    found = harness.execute(todo, path)
    assert len(path.read_text().splitlines()) == 4
    assert list(harness.load(path)) == ["none-0", "affine-0", "none-1", "affine-1"]
    assert [r["settings"]["model"] for r in found] == ["none", "affine", "none", "affine"]
    assert found[0]["data"] == {"name": "noise", "train": 24, "test": 8}
    assert {"lengthscale", "noise"} <= set(found[1]["learned"])
    assert len(found[1]["orbit"]) == 6
    assert {"versions", "hardware", "evidence", "metrics", "commit"} <= set(found[0])
    assert len(mnist.table(found).splitlines()) == 4

    made = []
    monkeypatch.setattr(
        mnist.MNIST, "run", lambda self, device: made.append(self) or {**found[0], "settings": vars(self)}
    )
    harness.execute(todo, path)
    assert not made
    other = replace(todo[0], num_inducing=5)  # not what the record is of
    harness.execute([other], path)
    assert made == [other]
    assert len(harness.load(path)) == 4  # it replaces the old one
    with pytest.raises(ValueError, match="same name"):
        harness.execute([todo[0], other], path)


def test_records_name_the_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    known = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None
    harness.commit.cache_clear()
    assert harness.commit() == known
    harness.commit.cache_clear()
    monkeypatch.setattr(harness, "__file__", str(tmp_path / "harness.py"))  # outside of any checkout
    assert harness.commit() is None
    harness.commit.cache_clear()


@dataclass(frozen=True)
class Process(harness.Run):
    """Records the process that it ran in."""

    number: int

    def name(self) -> str:
        return str(self.number)

    def measure(self, device: Any) -> dict[Any, Any]:
        return {"process": os.getpid()}


@pytest.mark.slow
def test_several_jobs_work_in_processes_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "process.jsonl"
    with new_process.workers():
        found = harness.execute([Process(3), Process(1)], path, jobs=2)
    assert [r["settings"] for r in found] == [{"number": 3}, {"number": 1}]
    assert list(harness.load(path)) == ["3", "1"]  # as planned, whichever ended first
    assert os.getpid() not in {r["process"] for r in found}


def test_a_run_that_sees_gradients(tmp_path: Path, tiny: Any) -> None:
    (run,) = mnist.all_runs(1, ["affine, gradients, Dirichlet"], num_train=24, **tiny)
    (found,) = harness.execute([run], tmp_path / "records.jsonl")
    assert {"window", "smoothing", "sharpness", "power"} <= set(found["learned"])
    assert found["settings"]["gradients"] == {}


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, tiny: Any) -> None:
    good, bad = mnist.all_runs(1, ["none", "affine"], num_train=24, **tiny)
    with pytest.raises(ExceptionGroup, match="1 of 2 runs failed") as caught:
        harness.execute([replace(bad, likelihood="bernoulli"), good], tmp_path / "records.jsonl")
    (error,) = caught.value.exceptions
    assert isinstance(error, ValueError)
    assert "likelihood='bernoulli'" in error.__notes__[0]
    assert list(harness.load(tmp_path / "records.jsonl")) == ["none-0"]


def test_standard_errors_are_over_seeds_or_of_the_test_set(record: Any) -> None:
    several = [
        record("none", error, evidence, seed) for seed, (error, evidence) in enumerate([(0.02, 5.0), (0.04, 9.0)])
    ]
    (row,) = harness.rows(several)
    assert (row.error, row.evidence) == pytest.approx((0.03, 7.0))
    assert (row.error_stderr, row.evidence_stderr) == pytest.approx((0.01, 2.0))
    (row,) = harness.rows(several[:1])
    assert (row.error_stderr, row.evidence_stderr) == pytest.approx(((0.02 * 0.98 / 10_000) ** 0.5, 1.0))


def test_only_clear_differences_can_disagree(record: Any) -> None:
    good, bad = record("good", 0.01, 100.0), record("bad", 0.02, 50.0)
    assert harness.disagreements(harness.rows([good, bad])) == []
    misled = record("bad", 0.02, 150.0)
    assert harness.disagreements(harness.rows([good, misled])) == [("good", "bad")]
    of_another_kind = record("bad", 0.02, 150.0, likelihood="dirichlet")
    assert harness.disagreements(harness.rows([good, of_another_kind])) == []
    unclear = record("bad", 0.0101, 150.0)
    assert harness.disagreements(harness.rows([good, unclear])) == []


def test_mnist_is_held_against_the_paper(record: Any, failing: Any) -> None:
    found = [record("none", 0.0215, 10.0), record("rotation", 0.0208, 20.0), record("affine", 0.0150, 30.0)]
    assert failing(mnist.check(found)) == ["affine: error at most the paper's 1.35 + 0.07 %"]
    assert "| 1.35 ± 0.07 % |" in mnist.table(found)
    few = [{**r, "data": {"train": 1000, "test": 500}} for r in found]
    assert failing(mnist.check(few)) == []
    worse = record(mnist.DIRICHLET, 0.0089, -2e6, likelihood="dirichlet")
    best = [*found[:2], worse, record(mnist.THICKNESS, 0.009, -1e6, likelihood="dirichlet")]
    wrong = failing(mnist.check(best))
    assert all(claim.startswith(mnist.THICKNESS) for claim in wrong)
    assert ["0.84" in claim or "0.56" in claim for claim in wrong] == [True, True]
    blind = record("none, gradients, Dirichlet", 0.0044, -3e6, likelihood="dirichlet")
    assert (
        failing(mnist.check([worse, blind]))[-3]
        == f"{blind['settings']['model']}: more evidence than {mnist.DIRICHLET}"
    )


def test_learned_rotations_are_held_against_the_fixed_one(tmp_path: Path, record: Any, failing: Any, tiny: Any) -> None:
    names = list(rotated_mnist.MODELS)
    values = [(0.06, 100.0), (0.03, 900.0), (0.0305, 895.0), (0.0315, 890.0), (0.03, 800.0)]
    found = [record(name, *value, train=12_000, test=50_000) for name, value in zip(names, values, strict=True)]
    wrong = failing(rotated_mnist.check(found))
    assert len(wrong) == 2
    assert wrong[0].startswith(f"{names[3]}: error within 0.1 points")
    assert wrong[1].startswith(f"{names[4]}: evidence within 12 nats")
    few = [{**r, "data": {"train": 1000, "test": 500}} for r in found]
    assert failing(rotated_mnist.check(few)) == []
    few[4]["evidence"] = {"value": 400.0, "stderr": 1.0}
    assert failing(rotated_mnist.check(few)) == [
        f"{names[4]}: nearer to the fixed one than to none, in error and evidence"
    ]
    todo = rotated_mnist.all_runs(1, names[:2], num_train=24, **tiny)
    assert len(rotated_mnist.EXPERIMENT.table(harness.execute(todo, tmp_path / "records.jsonl")).splitlines()) == 4


def test_small_data_reports_what_the_bound_picks(tmp_path: Path, record: Any, failing: Any, tiny: Any) -> None:
    sizes = {
        100: [(0.2, 1.0), (0.1, 2.0), (0.15, 3.0), (0.3, 0.0)],
        400: [(0.1, 9.0), (0.2, 8.0), (0.3, 7.0), (0.05, 6.0)],
    }
    found = [
        record(name, *value, train=size)
        for size, values in sizes.items()
        for name, value in zip(small_data.MODELS, values, strict=True)
    ]
    assert failing(small_data.check(found)) == ["400 digits: the bound picks none, with less error than none"]
    assert "| 100 | 20.00 % | 10.00 % | **15.00 %** | 30.00 % |" in small_data.table(found)
    small_data.figure(found, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    todo = small_data.all_runs(2, (4, 20), **tiny)
    assert [run.num_inducing for run in todo[::8]] == [6, 6]
    assert len({run.name() for run in todo}) == len(todo) == 16
    assert [run.gradients for run in todo[:4]] == [None, None, None, {}]
    first, second = todo[0].data(), todo[4].data()
    assert len(first.y_train) == 4
    assert not np.array_equal(first.x_train, second.x_train)


def test_copies_are_transformed_digits_with_their_labels(few_digits: Any, tmp_path: Path) -> None:
    planned = augmentation.plan(augmentation.EXPERIMENT.parser().parse_args(["--seeds", "1"]))
    none, copies, fixed, _ = (replace(run, num_train=5) for run in planned)
    assert np.array_equal(none.data().x_train, few_digits.x_train[:5])
    augmented = copies.data()
    assert augmented.x_train.shape == (50, 8, 8)
    assert np.array_equal(augmented.y_train, np.repeat(few_digits.y_train[:5], 10))
    near, far = (np.abs(augmented.x_train[:10] - few_digits.x_train[i]).mean() for i in (0, 1))
    assert near < far
    assert not np.array_equal(augmented.x_train[0], augmented.x_train[1])
    (found,) = harness.execute([replace(fixed, num_train=24, max_seconds=0.2)], tmp_path / "records.jsonl")
    assert found["orbit"]["angle"] == pytest.approx([-8.6, 8.6])  # as it started


def test_augmentation_is_held_against_invariance(record: Any, failing: Any) -> None:
    errors = {"none": (0.03, -900.0), "augmented copies": (0.02, -5000.0), "invariance, fixed": (0.02, -800.0)}
    found = [record(model, *values) for model, values in errors.items()]
    assert augmentation.check(found) == {}  # until there are all four
    assert failing(augmentation.check([*found, record("invariance, learned", 0.015, -700.0)])) == []
    wrong = failing(augmentation.check([*found, record("invariance, learned", 0.025, -850.0)]))
    assert [claim.partition(":")[0] for claim in wrong] == ["learned invariance"] * 2


@pytest.mark.slow
def test_exact_and_bound_agree_where_they_must() -> None:
    x, y = exact.data(12)
    orbit = Rotate90()
    value = exact.exact(x, y, orbit, *exact.start(x))
    at_all_data = exact.bound(x, y, orbit, *exact.start(x), 12, "f")
    at_all_elements = exact.bound(x, y, orbit, *exact.start(x), 48, "g")
    assert at_all_data == pytest.approx(value, abs=0.05)
    assert at_all_elements == pytest.approx(value, abs=0.05)
    assert exact.bound(x, y, orbit, *exact.start(x), 4, "f") < value - 1


def test_inducing_points_are_at_most_the_elements_of_all_orbits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(exact, "bound", lambda *arguments: float(asked.append(arguments[-2:]) or 1.5))
    exact.evidence.cache_clear()
    sizes = {"f": (2, 4), "g": (4, 16, 90)}
    values = [run.run()["evidence"]["value"] for run in exact.all_runs(sizes) if run.orbit == "rotate90" and run.size]
    exact.evidence.cache_clear()
    assert values == [1.5] * 5
    assert asked == [(2, "f"), (4, "f"), (4, "g"), (16, "g")]  # 90 are the 16 that were known


def test_exact_claims_and_table(tmp_path: Path, failing: Any) -> None:
    def record(orbit: str, inference: str | float, size: int | None, value: float) -> dict[Any, Any]:
        settings = {"orbit": orbit, "inference": inference, "size": size}
        return {"settings": settings, "evidence": {"value": value, "stderr": 0.0}}

    evidence = {"none": 10.0, "flip": 5.0, "rotate90": 50.0, "flip*rotate90": 40.0}
    records = [record(name, "exact", None, value) for name, value in evidence.items()]
    gaps = [(variable, *gap) for variable in exact.SIZES for gap in ((30, 0.1), (10, 20.0))]
    records += [record(name, v, size, value - gap) for name, value in evidence.items() for v, size, gap in gaps]
    assert failing(exact.check(records)) == []
    assert "| exact | 10.0 | 5.0 | **50.0** | 40.0 |" in exact.table(records)
    exact.figure(records, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").exists()
    for r in records:
        if (r["settings"]["size"], r["settings"]["orbit"]) == (30, "flip"):
            r["evidence"]["value"] += 1.0
    assert len(failing(exact.check(records))) == 2  # for f and for g


def test_the_demo_marks_the_learned_angle_on_the_evidence() -> None:
    axes = Figure().subplots()
    demo.draw_profile(axes, [float(-abs(angle - 90)) for angle in demo.ANGLES], 93.0, 0.5)
    curve, learned = axes.lines[:2]
    assert curve.get_xydata()[np.argmax(curve.get_ydata())].tolist() == [90.0, 0.0]
    assert learned.get_xydata().tolist() == [[93.0, 0.5]]


@pytest.mark.slow
def test_the_demo_draws_what_it_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NUM_TRAIN", 12)
    monkeypatch.setattr(demo, "ANGLES", demo.ANGLES[::9])
    monkeypatch.setattr(demo, "COLUMNS", 3)
    monkeypatch.setattr(demo, "ROWS", 2)
    demo.main(["--out", str(tmp_path)])
    assert "RBF, rotations learned" in capsys.readouterr().out
    assert (tmp_path / "demo.png").exists()


@pytest.mark.slow
def test_figure1_is_drawn_from_the_record_of_all_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure1, "SHOWN", (0, 1))
    with pytest.raises(SystemExit, match="there is no record of mnist-affine-0"):
        figure1.main(["--out", str(tmp_path)])
    start = Affine(angle=(-3.0, 8.0)).describe().to_dict()
    harness.store(tmp_path / "exact_evidence.jsonl", [{"name": figure1.RECORD, "orbit": start, "data": {"train": 24}}])
    assert figure1.learned_orbit(start).describe().to_dict()["angle"] == pytest.approx(start["angle"])
    figure1.main(["--out", str(tmp_path)])
    assert {"figure1.png", "figure1_ranges.png"} <= {p.name for p in tmp_path.iterdir()}


def test_pages_have_the_tables_of_the_records() -> None:
    pages = list(tables.pages(ROOT))
    assert pages[0] == ROOT / "README.md"
    assert any(page.name == "results.md" for page in pages)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert tables.page(text, ROOT / "results") == text, "run python -m experiments tables"


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        (["0123456789"], "; commit `0123456`. All"),
        (["0123456789", "abcdefghij", "0123456789"], "; commits `0123456`, `abcdefg`. All"),
        ([None], "; an earlier library, whose commit was not recorded. All"),
        (["0123456789", None], "; commit `0123456` and an earlier library, whose commit was not recorded. All"),
    ],
)
def test_a_table_says_which_commits_made_it(tmp_path: Path, record: Any, commits: list[str | None], said: str) -> None:
    found = [record("none", 0.02, -9.0, 0) | {"name": str(i), "commit": commit} for i, commit in enumerate(commits)]
    harness.store(tmp_path / "mnist.jsonl", found)
    assert said in tables.table("mnist", tmp_path)


def test_an_excerpt_shows_some_records_and_the_claims_of_all(tmp_path: Path, record: Any) -> None:
    found = [record("none", 0.02, -9.0, part=part) for part in ("sizes", "reduced")]
    for each, seed in zip(found, (0, 1), strict=True):
        each["settings"] |= {"part": each.pop("part"), "num_train": 60_000, "view": "pixels"}
        each |= {"name": str(seed), "seconds": {"fit": 1.0, "predict": 1.0}}
    harness.store(tmp_path / "defaults.jsonl", found)
    text = tables.table("sizes", tmp_path)
    assert text.count("| 60,000 | none |") == 1
    assert text.endswith("All that was to be shown holds.")
    with pytest.raises(ValueError, match="there is no table 'nothing'"):
        tables.table("nothing", tmp_path)


def test_a_table_follows_its_records(tmp_path: Path, record: Any) -> None:
    text = "before\n<!-- table: mnist -->\nold\n<!-- end -->\nafter <!-- table: settings -->"
    assert "*Not recorded yet.*" in tables.page(text, tmp_path)
    errors = {"affine": 0.0123, "none": 0.02}
    harness.store(
        tmp_path / "mnist.jsonl", [record(model, error, 5.0 - 100 * error) for model, error in errors.items()]
    )
    page = tables.page(text, tmp_path)
    assert page.startswith("before\n<!-- table: mnist -->\n\n| model |")
    assert page.endswith("\n\n<!-- end -->\nafter <!-- table: settings -->")
    assert page.index("| none | 2.00 %") < page.index("| affine | 1.23 % | 1.35 ± 0.07 % | angle 7.5 wide |")
    assert (
        "2 CPU cores, torch 2; an earlier library, whose commit was not recorded. All that was to be shown holds."
        in page
    )
    assert tables.page(page, tmp_path) == page
    assert "| mnist | 60,000 / 10,000 | 9 | 1 | 8 | 7 | 6 | 1 | 60 |" in tables.table("settings", tmp_path)
    with pytest.raises(ValueError, match="no table 'mnits'"):
        tables.table("mnits", tmp_path)


def test_reproduce_small_says_what_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    holds = {"toy": {"it is so": True}, "mnist": {"it is not": False}}
    monkeypatch.setattr(harness.Experiment, "main", lambda self, arguments: seen.append(arguments) or holds[self.name])
    reproduce_small.main(["--only", "toy", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        reproduce_small.main(["--only", "toy", "mnist", "--out", str(tmp_path)])
    assert "mnist: it is not" in capsys.readouterr().out
    assert seen == [["--out", str(tmp_path), "--quick", "--jobs", "2"]] * 3


def test_the_command_lists_experiments_and_hands_on_their_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main([])
    listed = capsys.readouterr().out
    assert "\ntoy " in listed
    assert "\ntables " in listed
    assert "\n__main__" not in listed
    assert "\nharness" not in listed
    seen: list[list[str]] = []
    monkeypatch.setattr(harness.Experiment, "main", lambda self, arguments: seen.append([self.name, *arguments]))
    command.main(["toy", "--out", "results", "--seeds", "3"])
    assert seen == [["toy", "--out", "results", "--seeds", "3"]]
    with pytest.raises(SystemExit, match="there is no experiment 'nothing'"):
        command.main(["nothing"])


def test_every_experiment_has_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    modules = [import_module(f"experiments.{name}") for name in command.available()]
    found = [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]
    assert len(found) >= 19
    for experiment in found:
        options = experiment.parser().parse_args([])
        assert {"out", "device", "jobs", "seeds", "quick", "draw", "label"} <= set(vars(options))
        small = experiment.parser().parse_args(["--quick", "--seeds", "1"])
        names = [run.name() for run in experiment.plan(small)]
        assert len(set(names)) == len(names) > 0
    with pytest.raises(SystemExit):
        toy.EXPERIMENT.parser().parse_args(["--device", "cuda"])  # it runs on the CPU only
    assert "choose from" in capsys.readouterr().err
