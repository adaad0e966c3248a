"""How long a run will take, and the progress of a comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orbitgp.datasets.files import Data
from orbitgp.estimators.base import InvariantEstimator
from orbitgp.orbits import Orbit

pytest.importorskip("typer")

from orbitgp import InvariantGPClassifier, InvariantGPRegressor
from orbitgp.cli.models import tell_estimate
from orbitgp.cli.run import Run
from orbitgp.comparison.compare import OneBar
from orbitgp.comparison.parallel import Job, train
from orbitgp.datasets.files import load
from orbitgp.orbits import Affine, Identity, Rotation
from orbitgp.training.progress import Progress

pytestmark = pytest.mark.usefixtures("one_start")


def test_workers_are_counted_in_models(capsys: pytest.CaptureFixture[str]) -> None:
    """Their records come all at once when a model is done."""
    jobs = [Job(name, Identity(), 0, InvariantGPClassifier) for name in ("rotation", "none")]
    with Progress([6.0, 3.0, 1.0], lines=True) as bar:
        watch = OneBar(bar, ["affine", "rotation", "none"])
        for job in jobs:
            watch(job, {"step": 20, "bound": 1.0, "orbit": {}})
            watch(job, None)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch("rotation, seed 0: 30 %, 00:00, about 00:00 left, 1 of 3 models done", first)
    assert re.fullmatch("none, seed 0: 40 %, 00:00, about 00:00 left, 2 of 3 models done", second)


def test_a_model_of_this_process_tells_how_far_it_is() -> None:
    rng = np.random.default_rng(0)
    x, seen = rng.normal(size=(30, 2)), []
    bar = Progress([1.0, 1.0])

    class Watching(OneBar):
        def __call__(self, job: Job, record: Mapping[str, Any] | None) -> None:
            super().__call__(job, record)
            seen.append(bar.fraction())

    train(Job("none", Identity(), 0, InvariantGPRegressor), x, x.sum(1), Watching(bar, ["none"]))
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] < 0.5


def estimate(
    data: Data,
    orbits: list[Orbit | str | None],
    workers: int = 1,
    kind: type[InvariantEstimator] = InvariantGPClassifier,
    **settings: Any,
) -> list[float]:
    say = Run(Path("run"), {}, quiet=False).say
    return tell_estimate(say, data, [kind(orbit, random_state=0, **settings) for orbit in orbits], workers)


def test_long_work_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    few, many = load("digits", max_data=50), load("digits", max_data=600)
    assert estimate(few, [Identity()]) == pytest.approx([2.0], abs=2.0)
    assert capsys.readouterr().err == ""
    estimate(many, [Rotation()], likelihood="gaussian")
    said = capsys.readouterr().err
    assert "this will take about" in said
    assert re.search("--max-data 300 would take [0-9]+ s", said)
    # What fits took, in seconds of one core of a busy machine: 300 digits with rotations 25, without an orbit 4.
    assert 20 <= sum(estimate(load("digits", max_data=300), [Identity(), Rotation(), Rotation()])) <= 80
    capsys.readouterr()
    estimate(many, [Rotation()], likelihood="gaussian", max_steps=2)
    estimate(many, [Rotation()], likelihood="gaussian", max_seconds=5.0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("settings", [{"inference": "sparse"}, {"num_inducing": 20, "batch_size": 100}])
def test_sparse_work_is_announced(settings: dict[str, int | str], capsys: pytest.CaptureFixture[str]) -> None:
    (seconds,) = estimate(load("digits", max_data=600), [Rotation()], likelihood="gaussian", **settings)
    assert 10 < seconds < 3000
    assert "this will take about" in capsys.readouterr().err


def test_many_rows_of_a_table_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    """Noise has a closed form, and is learned from some of the rows: neither must hide how long it takes."""
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=(20_000, 5)), "y": rng.normal(size=20_000), "test": None}
    data = replace(load("digits", max_data=50), **table)
    for orbit in ("noise", None):
        (seconds,) = estimate(data, [orbit], kind=InvariantGPRegressor)
        assert 30 < seconds < 1000
        assert "this will take about" in capsys.readouterr().err


def test_what_saves_little_time_is_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    """Most of the time of a fit of few data does not depend on their number."""
    data = load("digits", max_data=100)
    estimate(load("digits", max_data=40), [Affine()] * 5)
    said = capsys.readouterr().err
    assert re.fullmatch(r"this will take about \d+ (s|minutes) on a free machine\n", said), said
    few = replace(data, test=None, y=data.y[:30], x=np.random.default_rng(0).random((30, 3, 200, 200)))
    large = replace(few, options=replace(data.options, colour="RGB"))
    estimate(large, [Affine()])
    said = capsys.readouterr().err
    assert "--resize 32x32 would take" in said
    assert "--max-data" not in said
    estimate(
        replace(large, x=np.random.default_rng(0).random((30, 3, 60, 60))), [Affine()]
    )  # not far above what is offered
    assert "--resize 32x32 would take" in capsys.readouterr().err
    estimate(replace(large, x=large.x[..., :20, :]), [Affine()] * 5)  # with a side that is shorter than those offered
    assert "--resize 32x32 would take" in capsys.readouterr().err
