"""How long a run will take is said before it begins."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")

from orbitgp.cli.begin import Run
from orbitgp.cli.progress import print_estimate
from orbitgp.cli.run_folder import RunFolder
from orbitgp.datasets.files import load
from orbitgp.orbits import Affine, Identity, Rotation


def estimate(data, config, orbits):
    print_estimate(Run(RunFolder(Path("run")), config, data, quiet=False), orbits)


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
        estimate(data, config, [Affine()] * repeats)
        said = capsys.readouterr().err
        assert re.fullmatch(r"this will take about \d+ (s|minutes) on a free machine\n", said), said
    few = replace(data, x_test=None, y_test=None, y_train=data.y_train[:60], x_train=np.zeros((60, 3, 200, 200)))
    large = replace(few, read_options=replace(data.read_options, colour="RGB"))
    estimate(large, config, [Affine()])
    said = capsys.readouterr().err
    assert "--resize 32x32 would take" in said
    assert "--max-data" not in said
