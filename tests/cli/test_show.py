"""``orbitgp show``: what a run has learned."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("typer")

from orbitgp.cli.run import Run
from orbitgp.datasets import digits
from tests.cli.calling import call


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


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"command": 3}', '{"command": "learn"}'])
def test_a_configuration_that_is_none_is_one_sentence(here, text):
    (here / "run").mkdir()
    (here / "run/config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is damaged: .*\.$"):
        Run.open(here / "run")
