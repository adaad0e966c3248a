"""How long a run will take; and progress: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")

from orbitgp import InvariantGPClassifier
from orbitgp.cli.progress import Progress, print_estimate
from orbitgp.cli.run import Run
from orbitgp.comparison.parallel import Job
from orbitgp.datasets.files import load
from orbitgp.orbits import Affine, Identity, Rotation


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


def test_the_time_left_of_a_resumed_run_counts_its_own_steps_only(capsys):
    with Progress(1, 1000) as progress:
        progress.begin_at("rotation", 900)
        progress.bar.start_t -= 10.0
        progress.bar.last_print_t -= 10.0
        progress.record("rotation", {"step": 910, "bound": 1.0, "orbit": {}})
        assert progress.bar.n == 910
        assert "01:3" in str(progress.bar)  # 90 steps, one a second
    capsys.readouterr()


def estimate(data, config, orbits):
    run = Run(Path("run"), config, quiet=False)
    run.data = data
    print_estimate(run, orbits)


def test_long_work_is_announced(capsys):
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    settings |= {"device": "cpu", "inference": "auto"}
    estimate(load("digits", max_data=50), {"settings": settings}, [Rotation()])
    assert capsys.readouterr().err == ""
    estimate(load("digits", max_data=600), {"settings": settings}, [Rotation()])
    said = capsys.readouterr().err
    assert "this will take about" in said
    assert re.search("--max-data 300 would take [0-9]+ s", said)
    # What fits took, in seconds of one core of a busy machine: 300 digits with rotations 25, without an orbit 4.
    for orbits, low, high in (([Rotation(), Rotation()], 20, 60), ([Identity(), Rotation(), Rotation()], 20, 64)):
        estimate(load("digits", max_data=300), {"settings": settings}, orbits)
        number, unit = re.search(r"about ([0-9]+) (s|minutes)", capsys.readouterr().err).groups()
        assert low <= int(number) * (60 if unit == "minutes" else 1) <= high
    estimate(load("digits", max_data=600), {"settings": {**settings, "max_steps": 2}}, [Rotation()])
    estimate(load("digits", max_data=600), {"settings": {**settings, "max_seconds": 5.0}}, [Rotation()])
    assert capsys.readouterr().err == ""
    sparse = {**settings, "inference": "sparse"}
    estimate(load("digits", max_data=600), {"settings": sparse}, [Rotation()])
    assert capsys.readouterr().err == ""


def test_what_saves_little_time_is_not_offered(capsys):
    """Most of the time of a fit of few data does not depend on their number."""
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    config = {"settings": settings | {"device": "cpu", "inference": "auto"}}
    data = load("digits", max_data=100)
    for repeats in (5, 30):
        estimate(load("digits", max_data=40), config, [Affine()] * repeats)
        said = capsys.readouterr().err
        assert re.fullmatch(r"this will take about \d+ (s|minutes) on a free machine\n", said), said
    few = replace(data, x_test=None, y_test=None, y_train=data.y_train[:60], x_train=np.zeros((60, 3, 200, 200)))
    large = replace(few, read_options=replace(data.read_options, colour="RGB"))
    estimate(large, config, [Affine()])
    said = capsys.readouterr().err
    assert "--resize 32x32 would take" in said
    assert "--max-data" not in said
