"""The result of a run in words."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("typer")

from orbitgp.cli.results import name_and_source
from orbitgp.orbits import GaussianNoise
from orbitgp.orbits.description import Quantity
from orbitgp.report.words import noise_in_units
from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("one_start")


def test_the_source_of_data_is_named_where_it_says_more() -> None:
    assert name_and_source(SimpleNamespace(name="shapes", source="shapes")) == "shapes"
    assert name_and_source(SimpleNamespace(name="plants", source="plants.csv")) == "plants (plants.csv)"


def test_noise_is_said_only_in_columns_that_have_a_unit() -> None:
    learned = GaussianNoise(0.2).describe()
    noted = "Columns are standardised. In their own units, the noise has a standard deviation of 2.0 in dose."
    assert noise_in_units(learned, ["dose", "site=east"], [(90.0, 10.0), (0.0, 1.0)]) == [noted]
    assert noise_in_units(learned, ["site=east"], [(0.0, 1.0)]) == []
    assert noise_in_units(learned, ["dose"], ()) == []


def test_an_end_that_the_data_do_not_limit_is_null_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{i},{i % 5},{i / 7}" for i in range(12)]
    Path("t.csv").write_text("\n".join(["a,b,target", *rows]))
    found = {"scale": (Quantity(0.01), Quantity(inf))}
    monkeypatch.setattr("orbitgp.estimators.base.plausible_ranges", lambda climber: found)
    assert (
        call("learn", "t.csv", "--orbit", "noise", "--num-samples", 4, "--no-baseline", "--out", "run").exit_code == 0
    )
    assert json.loads(Path("run/result.json").read_text(), parse_constant=pytest.fail)["plausible"] == {
        "scale": [0.01, None]
    }
    assert "(plausible at least 0.010, not determined above)" in call("show", "run").stdout
