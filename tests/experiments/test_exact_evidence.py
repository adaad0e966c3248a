"""Learning by the exact evidence: what is recorded, and which claims follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import exact_evidence, harness, mnist, tables
from experiments.views import VIEWS
from orbitgp.kernels import OrientedGradients
from orbitgp.planning import cost

TINY = {"dataset": "digits", "num_train": 30, "num_test": 10, "max_seconds": 0.2}
FEW_MODELS = ("none, gradients", "affine, two scales", "deformation")


def test_the_plan_is_what_the_page_says() -> None:
    found = exact_evidence.plan(exact_evidence.EXPERIMENT.parser().parse_args([]))
    in_pixels = [run.orbit for run in found if run.view == "pixels" and run.max_seconds is None]
    assert len(found) == 22
    assert in_pixels == ["none", "rotation(10)", "affine", "deformation", "tangent", "affine*deformation*thickness"]
    assert {(run.dataset, run.num_train) for run in found} == {("mnist", 60_000)}
    limits = {run.model: run.max_seconds for run in found if run.max_seconds is not None}
    shorter = {name: float(name.split()[-2]) for name in limits if "limit of" in name}
    assert len(shorter) == 3
    assert shorter.items() <= limits.items()
    assert limits.keys() - shorter == {run.model for run in found if "in less time" in run.model} | set(
        exact_evidence.STARTS
    )


def test_every_sparse_model_of_mnist_has_one_beside_it() -> None:
    beside = [row.model for rows in exact_evidence.by_hand().values() for row in rows]
    assert sorted(beside) == sorted(mnist.MODELS)
    assert set(exact_evidence.BY_HAND) <= set(exact_evidence.MODELS)


def test_the_view_of_the_defaults_is_that_of_the_library() -> None:
    given = VIEWS["learned floor"]()
    assert repr(given) == repr(OrientedGradients())
    assert all(parameter.requires_grad for parameter in given.parameters())


@pytest.mark.slow
def test_quick_version_through_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_evidence, "QUICK", TINY)
    monkeypatch.setattr(cost, "MOST_DRAWS", 32)
    claims = exact_evidence.EXPERIMENT.main(["--quick", "--out", str(tmp_path), "--models", *FEW_MODELS])
    found = harness.load(tmp_path / "exact_evidence.jsonl").values()
    assert [r["settings"]["model"] for r in found] == list(FEW_MODELS)
    assert claims == {}  # these are not MNIST
    assert tables.table("exact_evidence", tmp_path).startswith("| model | test error |")


def of_digits(model: str, evidence: Any, error: float, train: int = 60_000, seconds: float = 140.0) -> dict[Any, Any]:
    return {
        "settings": {"model": model, "likelihood": "auto"},
        "data": {"train": train, "test": 10_000},
        "evidence": {"value": evidence, "stderr": 30.0, "num_learned": 12_000, "exact": True},
        "metrics": {"error_rate": error, "nll": 0.01, "ece": 0.002},
        "seconds": {"fit": seconds, "predict": 16.0},
        "evaluations": 30,
        "converged": True,
        "orbit": {"angle": [-3.0, 4.5]} if model.startswith("affine") else {},
    }


def records(none: float, affine: Any, error: float, train: int = 60_000) -> list[Any]:
    return [of_digits("none, gradients", none, error, train), of_digits("affine, gradients", affine, error, train)]


def test_claims_and_table(failing: Any) -> None:
    good = records(-20.0, -10.0, 0.0042)
    assert failing(exact_evidence.check(good)) == []
    assert len(exact_evidence.check(good)) == 4
    assert len(failing(exact_evidence.check(records(-10.0, -20.0, 0.0043)))) == 2
    assert len(failing(exact_evidence.check(records(-20.0, -10.0, 0.005)))) == 2  # the sparse model has fewer errors
    slow = [r | {"seconds": {"fit": 500.0, "predict": 1.0}} for r in good]
    assert len(failing(exact_evidence.check(slow))) == 2
    assert exact_evidence.check(records(-10.0, -20.0, 0.5, train=300)) == {}
    text = exact_evidence.table(good)
    learned = "12,000 | angle 7.5 wide | 30 | 140 + 16 | 0.44 %, 275 s"
    assert f"| affine, gradients | 0.42 % |  | 0.0100 | 0.0020 | -10 ± 30 | {learned} |" in text


def test_headlines_are_those_without_a_limit() -> None:
    found = [of_digits(name, -10.0, 0.01, seconds=30.0) for name in ("affine", "none", exact_evidence.NEAR)]
    for r in found:
        r["settings"]["max_seconds"] = exact_evidence.MODELS[r["settings"]["model"]].get("max_seconds")
    assert exact_evidence.headlines(found).splitlines()[2:] == [
        "| affine | 1.00 % | 0.0100 | -10 ± 30 | 30 | 1.35 ± 0.07 % | 1.23 % |",
        "| none | 1.00 % | 0.0100 | -10 ± 30 | 30 | 2.15 ± 0.03 % | 2.01 % |",
    ]


def test_times_are_those_of_affine_maps() -> None:
    names = ["affine", "none", "affine, gradients", "affine, limit of 20 s"]
    found = [of_digits(name, -10.0, 0.01, seconds=30.0) for name in names]
    for r in found:
        r["settings"]["max_seconds"] = exact_evidence.MODELS[r["settings"]["model"]].get("max_seconds")
    assert exact_evidence.times(found).splitlines()[2:] == [
        "| pixels | exact, learned from 12,000 | 20 s | 30 s | 1.00 % | -10 ± 30 |",
        "| pixels | exact, learned from 12,000 | none | 30 s | 1.00 % | -10 ± 30 |",
        "| gradients | exact, learned from 12,000 | none | 30 s | 1.00 % | -10 ± 30 |",
    ]
    timed = [exact_evidence.MODELS[name]["orbit"] for names in exact_evidence.TIMED.values() for name in names]
    assert set(timed) == {"affine"}


@pytest.mark.parametrize(
    ("error", "seconds", "holds"), [(0.0135, 60.0, True), (0.0136, 40.0, False), (0.008, 61.0, False)]
)
def test_the_error_of_the_paper_is_to_be_reached_soon(error: float, seconds: float, holds: bool) -> None:
    found = of_digits("affine, limit of 40 s", -1000.0, error, seconds=seconds)
    elsewhere = [
        of_digits(name, -1000.0, 0.001, seconds=1.0) for name in ("none", "affine, gradients", *exact_evidence.STARTS)
    ]
    claims = exact_evidence.check([found, *elsewhere])
    assert claims["MNIST, affine maps of pixels: the paper's 1.35 % within 60 seconds"] == holds


@pytest.mark.parametrize(("nats", "holds"), [(100.0, True), (-100.0, True), (200.0, False), (-200.0, False)])
def test_other_starts_must_end_with_the_evidence_of_the_default_one(failing: Any, nats: float, holds: bool) -> None:
    """Each is known to ± 30 nats, so three standard errors of the difference are 127."""
    near = of_digits(exact_evidence.NEAR, -1000.0, 0.004, seconds=50.0)
    others = [of_digits(name, -1000.0 + nats, 0.004) for name in exact_evidence.STARTS]
    claims = exact_evidence.check([near, *others])
    assert sum("as much evidence as" in claim for claim in claims) == 3
    assert len(failing(claims)) == (0 if holds else 3)
