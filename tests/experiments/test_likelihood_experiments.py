"""The experiments on likelihoods run, at a size that says nothing, and record what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import harness, likelihoods, local_parameters, logistic_bound


def smaller(monkeypatch: pytest.MonkeyPatch, module: Any, **settings: Any) -> None:
    """Let an experiment plan smaller models."""
    plan = module.plan
    small = replace(module.EXPERIMENT, plan=lambda options: [replace(run, **settings) for run in plan(options)])
    monkeypatch.setattr(module, "EXPERIMENT", small)


@pytest.mark.slow
def test_likelihoods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smaller(monkeypatch, likelihoods, num_train=30, max_seconds=0.3)
    likelihoods.EXPERIMENT.main(["--quick", "--out", str(tmp_path), "--names", "gaussian", "dirichlet"])
    found = list(harness.load(tmp_path / "likelihoods.jsonl").values())
    assert [(r["settings"]["model"], r["settings"]["likelihood"]) for r in found] == [
        (orbit, name) for orbit in ("rotation", "none") for name in ("gaussian", "dirichlet")
    ]
    for r in found:
        assert 0.0 <= r["metrics"]["error_rate"] < 0.95
        assert r["metrics"]["nll"] > 0.0
        assert r["inference"] == "exact"
        assert likelihoods.pooled_ece([r]) == pytest.approx(r["metrics"]["ece"])  # one split
        assert (r["orbit"].get("degrees", 0.0) > 0) == (r["settings"]["model"] == "rotation")
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| digits")]
    assert [row.split(" | ")[1:3] for row in rows] == [
        [name, orbit] for orbit in ("none", "rotation") for name in ("gaussian", "dirichlet")
    ]


@pytest.mark.slow
def test_local_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smaller(monkeypatch, local_parameters, seconds=5.0, max_steps=3, num_train=60, num_inducing=12, num_samples=4)
    local_parameters.EXPERIMENT.main(["--quick", "--out", str(tmp_path)])
    found = list(harness.load(tmp_path / "local_parameters.jsonl").values())
    assert [r["settings"]["source"] for r in found] == ["kept", "network"]
    for r in found:
        assert r["steps"] > 0
        # Local parameters that are best for the same q(u) give the better bound, up to the noise of both.
        assert r["evidence"]["own"] < r["evidence"]["value"] + 0.1 * r["data"]["train"]


def test_logistic_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = logistic_bound.Bounds(442, -100.0, -102.0, -103.0)
    monkeypatch.setattr(logistic_bound, "bounds", lambda *_: bounds)
    logistic_bound.EXPERIMENT.main(["--out", str(tmp_path)])
    assert list(harness.load(tmp_path / "logistic_bound.jsonl"))[-1] == "wine-the-second-or-not-0"
    assert "| breast cancer | 442 | -100.00 | -102.00 | -103.00 | 2.00% | 1.00% |" in capsys.readouterr().out
