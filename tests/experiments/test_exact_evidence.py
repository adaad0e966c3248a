"""Learning by the exact evidence: what is recorded, and which claims follow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments import exact_evidence, harness, tables
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import OrientedGradients
from orbitgp.orbits import Affine

TINY = {"dataset": "digits", "num_learn": 20, "num_train": 40, "num_test": 10, "num_samples": 2, "max_seconds": 2.0}


def test_the_plan_is_what_the_page_says():
    options = exact_evidence.EXPERIMENT.parser().parse_args([])
    found = exact_evidence.plan(options)
    of_mnist, of_angles = found[:2], found[2:]
    assert [(run.orbit, run.dataset, run.num_learn, run.num_train, run.num_samples) for run in of_mnist] == [
        ("none", "mnist", 12_000, 60_000, 16),
        ("affine", "mnist", 12_000, 60_000, 16),
    ]
    assert len(of_angles) == 4 * (1 + 9 + 3)
    assert {run.start for run in of_angles if run.kind == "learned"} == {5.0, 45.0, 150.0}
    only = exact_evidence.EXPERIMENT.parser().parse_args(["--parts", "digits"])
    assert exact_evidence.plan(only) == of_angles


def test_what_is_learned_from_some_digits_is_conditioned_on_all(monkeypatch):
    models = []
    condition = ExactGP.condition
    monkeypatch.setattr(ExactGP, "condition", lambda self, *a, **k: models.append(self) or condition(self, *a, **k))
    (run,) = [run for run in exact_evidence.all_digits(**TINY) if run.orbit == "affine"]
    found = run.run()
    learner, final = models[0], models[-1]
    assert (len(learner.x), len(final.x)) == (20, 40)
    assert final.kernel is learner.kernel
    assert final.orbit is learner.orbit
    assert (learner.num_samples, final.num_samples) == (2, 2)
    # The record has the constants of the map that was learned, not of the one that was passed in.
    given = OrientedGradients()
    window = float(final.kernel.feature_map.raw_window.detach().exp())
    assert found["learned"]["window"] == pytest.approx(window)
    assert window != pytest.approx(float(given.raw_window.detach().exp()))
    assert found["orbit"] == final.orbit.describe().to_dict() != Affine().describe().to_dict()
    assert {"learn", "condition", "predict"} <= set(found["seconds"])
    # An oracle for the evidence: a normal density of all targets, class by class.
    likelihood = exact_evidence.Dirichlet(10, 1e-5)
    data = run.data()
    quadratic = likelihood.quadratic(likelihood.encode(torch.from_numpy(data.y_train)), None)
    targets, noise = (quadratic.eta / quadratic.lam).double(), 1 / quadratic.lam.double()
    gram, total = final.gram().double(), 0.0
    for k in range(10):
        normal = torch.distributions.MultivariateNormal(
            final.prior_mean.bias.detach()[k].expand(40).double(), gram + torch.diag(noise[:, k])
        )
        total += float(normal.log_prob(targets[:, k]))
    assert found["evidence"]["value"] == pytest.approx(total, rel=1e-5)
    assert found["evidence_learned"] > found["evidence"]["value"]  # of half as many digits


@pytest.mark.slow
def test_quick_version_through_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(exact_evidence, "QUICK_DIGITS", TINY)
    claims = exact_evidence.EXPERIMENT.main(["--quick", "--out", str(tmp_path)])
    found = harness.load(tmp_path / "exact_evidence.jsonl").values()
    assert [r["settings"]["part"] for r in found] == ["mnist"] * 2 + ["digits"] * 5
    assert len(claims) == 2
    assert all(claims.values())
    assert (tmp_path / "exact_evidence.png").exists()
    page = tables.table("exact_evidence", tmp_path)
    assert page.startswith("| model | test error |")
    assert "| digits rotated within ±60° | 90° (" in page


def records(none, affine, error, behind, train=60_000):
    def digits(model, evidence):
        return {
            "settings": {"part": "mnist", "model": model, "num_learn": 12_000},
            "data": {"train": train},
            "evidence": {"value": evidence},
            "metrics": {"error_rate": error, "nll": 0.01, "ece": 0.002},
            "seconds": {"learn": 120.0, "condition": 20.0, "predict": 16.0},
            "evidence_learned": evidence / 5,
            "evaluations": 30,
            "orbit": {"angle": [-3.0, 4.5]} if model.startswith("affine") else {},
            "learned": dict.fromkeys(exact_evidence.GRADIENTS, 0.5),
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
    assert "| affine, gradients | 0.42 % | 0.0100 | 0.0020 | -2 | -10 | angle 7.5 wide |" in text
    assert "| t | 90° (200 nats) | 5° (-2.9 nats) |" in text


def test_a_part_alone_has_its_table_and_no_picture(tmp_path):
    alone = records(-20.0, -10.0, 0.004, 0.0)[:2]
    assert len(exact_evidence.table(alone).splitlines()) == 4
    exact_evidence.figure(alone, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
    assert np.all(list(exact_evidence.check(alone).values()))
