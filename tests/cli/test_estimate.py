"""How long a run will take is said before it begins."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("typer")

from orbitgp.cli.estimate import print_estimate
from orbitgp.datasets.files import load
from orbitgp.orbits import Affine, Identity, Rotation


def test_long_work_is_announced(capsys):
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    settings |= {"device": "cpu", "inference": "auto"}
    print_estimate(load("digits", max_data=50), {"settings": settings}, [Rotation()], quiet=False)
    assert capsys.readouterr().err == ""
    print_estimate(load("digits", max_data=600), {"settings": settings}, [Rotation()], quiet=False)
    said = capsys.readouterr().err
    assert "this will take about" in said
    assert re.search("--max-data 300 would take [0-9]+ s", said)
    # What fits took, in seconds of one core of a busy machine: 300 digits with rotations 25, without an orbit 4.
    for orbits, low, high in (([Rotation(), Rotation()], 20, 60), ([Identity(), Rotation(), Rotation()], 20, 64)):
        print_estimate(load("digits", max_data=300), {"settings": settings}, orbits, quiet=False)
        number, unit = re.search(r"about ([0-9]+) (s|minutes)", capsys.readouterr().err).groups()
        assert low <= int(number) * (60 if unit == "minutes" else 1) <= high
    print_estimate(load("digits", max_data=600), {"settings": {**settings, "max_steps": 2}}, [Rotation()], quiet=False)
    print_estimate(load("digits", max_data=600), {"settings": {**settings, "max_seconds": 5.0}}, [Rotation()], quiet=False)
    assert capsys.readouterr().err == ""
    sparse = {**settings, "inference": "sparse"}
    print_estimate(load("digits", max_data=600), {"settings": sparse}, [Rotation()], quiet=False)
    assert capsys.readouterr().err == ""


def test_what_saves_little_time_is_not_offered(capsys):
    """Most of the time of a fit of few data does not depend on their number."""
    settings = dict.fromkeys(("num_inducing", "batch_size", "num_samples", "max_steps", "max_seconds"))
    config = {"settings": settings | {"device": "cpu", "inference": "auto"}}
    data = load("digits", max_data=100)
    for repeats in (5, 30):
        print_estimate(data, config, [Affine()] * repeats, quiet=False)
        said = capsys.readouterr().err
        assert re.fullmatch(r"this will take about \d+ (s|minutes) on a free machine\n", said), said
    few = replace(data, x_test=None, y_test=None, y_train=data.y_train[:60], x_train=np.zeros((60, 3, 200, 200)))
    large = replace(few, read_options=replace(data.read_options, colour="RGB"))
    print_estimate(large, config, [Affine()], quiet=False)
    said = capsys.readouterr().err
    assert "--resize 32x32 would take" in said
    assert "--max-data" not in said
