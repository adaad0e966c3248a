"""The two experiments run, at a size that says nothing, and write what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import likelihoods, local_parameters


@pytest.mark.slow
def test_likelihoods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = likelihoods.fits
    small = {"num_train": 300, "num_inducing": 15, "num_samples": 4, "max_steps": 2}
    monkeypatch.setattr(likelihoods, "fits", lambda config, jobs: original(replace(config, **small), jobs))
    likelihoods.main(["--quick", "--out", str(tmp_path), "--names", "gaussian", "dirichlet"])
    results = json.loads((tmp_path / "likelihoods.json").read_text())["results"]
    assert [(row["orbit"], row["likelihood"]) for row in results] == [
        (orbit, name) for orbit in ("none", "rotation") for name in ("gaussian", "dirichlet")
    ]
    for row in results:
        assert 0.0 <= row["error"] < 0.95
        assert row["nll"] > 0.0
        assert row["ece_pooled"] == pytest.approx(row["ece"])  # one split
        assert (row["degrees"] > 0) == (row["orbit"] == "rotation")
    assert len((tmp_path / "likelihoods.jsonl").read_text().splitlines()) == 4
    assert "| dirichlet | rotation |" in capsys.readouterr().out


@pytest.mark.slow
def test_local_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = local_parameters.train
    small = {"seconds": 5.0, "max_steps": 3, "num_train": 100, "num_inducing": 20, "num_samples": 4}
    monkeypatch.setattr(local_parameters, "train", lambda config, *rest: original(replace(config, **small), *rest))
    local_parameters.main(["--quick", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "local_parameters.json").read_text())["results"]
    assert [(row["optimizer"], row["source"]) for row in results] == [
        (optimizer, source) for optimizer in ("natural", "adam") for source in ("kept", "network", "groups")
    ]
    for row in results:
        assert row["steps"] > 0
        # Local parameters that are best for the same q(u) give the better bound, up to the noise of both.
        assert row["own_bound"] < row["best_bound"] + 0.1
