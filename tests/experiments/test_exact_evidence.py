"""Learning by the exact evidence: what is recorded, and which claims follow."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import exact_evidence, harness, tables
from experiments.views import VIEWS
from orbitgp.estimators import defaults
from orbitgp.kernels import OrientedGradients

TINY = {"dataset": "digits", "num_train": 30, "num_test": 10, "max_seconds": 0.2}
FEW_MODELS = ("none, gradients", "affine, two scales", "deformation")
FEW_ANGLES = {"rotated": (60.0,), "angles": (90.0,), "starts": (5.0,), "num_train": 40, "num_test": 10}


def test_the_plan_is_what_the_page_says():
    options = exact_evidence.EXPERIMENT.parser().parse_args([])
    found = exact_evidence.plan(options)
    of_mnist, of_angles = found[:8], found[8:]
    in_pixels = [run.orbit for run in of_mnist if run.view == "pixels"]
    assert in_pixels == ["none", "rotation(10)", "affine", "deformation", "tangent"]
    assert {(run.dataset, run.num_train, run.max_seconds) for run in of_mnist} == {("mnist", 60_000, None)}
    assert len(of_angles) == 4 * (1 + 9 + 3)
    assert {run.start for run in of_angles if run.kind == "learned"} == {5.0, 45.0, 150.0}
    only = exact_evidence.EXPERIMENT.parser().parse_args(["--parts", "digits"])
    assert exact_evidence.plan(only) == of_angles


def test_the_view_of_the_defaults_is_that_of_the_library():
    given = VIEWS["learned floor"]()
    assert repr(given) == repr(OrientedGradients())
    assert all(parameter.requires_grad for parameter in given.parameters())


@pytest.mark.slow
def test_quick_version_through_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(exact_evidence, "QUICK_DIGITS", TINY)
    monkeypatch.setattr(exact_evidence, "QUICK_ANGLES", FEW_ANGLES)
    monkeypatch.setattr(defaults, "MOST_SAMPLES", 32)
    claims = exact_evidence.EXPERIMENT.main(["--quick", "--out", str(tmp_path), "--models", *FEW_MODELS])
    found = harness.load(tmp_path / "exact_evidence.jsonl").values()
    assert [r["settings"]["part"] for r in found] == ["mnist"] * 3 + ["digits"] * 3
    assert len(claims) == 1
    assert all(claims.values())
    assert (tmp_path / "exact_evidence.png").exists()
    page = tables.table("exact_evidence", tmp_path)
    assert page.startswith("| model | test error |")
    assert "| digits rotated within ±60° | 90° (" in page


def records(none, affine, error, behind, train=60_000):
    def digits(model, evidence):
        return {
            "settings": {"part": "mnist", "model": model},
            "data": {"train": train},
            "evidence": {"value": evidence, "num_learned": 12_000},
            "metrics": {"error_rate": error, "nll": 0.01, "ece": 0.002},
            "seconds": {"fit": 140.0, "predict": 16.0},
            "evaluations": 30,
            "converged": True,
            "orbit": {"angle": [-3.0, 4.5]} if model.startswith("affine") else {},
        }

    def angle(kind, value, evidence):
        return {
            "settings": {"part": "digits", "kind": kind, "start": value, "seed": 0},
            "profile": {"title": "t", "key": "degrees", "unit": "°", "short": 0.0},
            "orbit": {"degrees": value} if value else {},
            "evidence": {"value": evidence, "stderr": 0.0},
            "metrics": {"error_rate": 0.1},
        }

    angles = [angle("none", 0.0, 10.0), angle("fixed", 90.0, 200.0), angle("learned", 5.0, 200.0 - behind)]
    return [digits("none, gradients", none), digits("affine, gradients", affine), *angles]


def test_claims_and_table(failing):
    good = records(-20.0, -10.0, 0.0042, 2.9)
    assert failing(exact_evidence.check(good)) == []
    assert len(exact_evidence.check(good)) == 3
    assert len(failing(exact_evidence.check(records(-10.0, -20.0, 0.0043, 3.1)))) == 3
    assert len(exact_evidence.check(records(-10.0, -20.0, 0.5, -50.0, train=300))) == 1  # not MNIST
    text = exact_evidence.table(good)
    assert "| affine, gradients | 0.42 % | 0.0100 | 0.0020 | -10 | 12,000 | angle 7.5 wide | 30 | 140 + 16 |" in text
    assert "| t | 90° (200 nats) | 5° (-2.9 nats) |" in text


def test_a_part_alone_has_its_table_and_no_picture(tmp_path):
    alone = records(-20.0, -10.0, 0.004, 0.0)[:2]
    assert len(exact_evidence.table(alone).splitlines()) == 4
    exact_evidence.figure(alone, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    assert np.all(list(exact_evidence.check(alone).values()))
