"""Profiles of exact and sparse inference: what is planned and recorded, and which claims follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import deformations, harness, odd_even, profiles, rotated_digits, tables
from experiments.default_fit import DefaultFit
from experiments.harness import Experiment
from experiments.profiles import Profile
from orbitgp.estimators import InvariantGPClassifier


def test_a_profile_has_a_grid_and_starts_for_each_inference() -> None:
    (profile,) = rotated_digits.QUICK
    options = rotated_digits.EXPERIMENT.parser().parse_args(["--quick", "--seeds", "2"])
    todo: Any = rotated_digits.EXPERIMENT.plan(options)
    each = [
        ("none", 0.0),
        *(("fixed", value) for value in profile.grid),
        *(("learned", value) for value in profile.starts),
    ]
    assert [(run.seed, run.inference, run.kind, run.start) for run in todo] == [
        (seed, inference, *pair) for seed in (0, 1) for inference in ("auto", "sparse") for pair in each
    ]
    assert todo[1].orbit == "rotation(30.0, learn=False)"
    assert todo[-1].orbit == "rotation(150.0, learn=True)"
    assert len({run.name() for run in todo}) == len(todo)


@pytest.mark.parametrize("experiment", [rotated_digits.EXPERIMENT, deformations.EXPERIMENT, odd_even.EXPERIMENT])
def test_nothing_about_training_is_set(experiment: Experiment) -> None:
    run: Any = experiment.plan(experiment.parser().parse_args(["--seeds", "1"]))[-1]
    given, default = run.estimator("cpu").get_params(deep=False), InvariantGPClassifier().get_params(deep=False)
    changed = {name for name, value in given.items() if value != default[name]}
    assert changed <= {"orbit", "likelihood", "inference", "random_state", "device"}


@pytest.fixture
def profiled() -> Callable[..., Any]:
    """Makes a record of a profile."""

    def make(
        kind: Any,
        value: Any,
        evidence: Any,
        inference: str = "auto",
        start: float = 5.0,
        max_seconds: Any = None,
        exact: Any = None,
        stderr: float = 0.0,
    ) -> dict[Any, Any]:
        settings = {"kind": kind, "inference": inference, "start": start if kind == "learned" else value}
        return {
            "settings": settings | {"max_seconds": max_seconds},
            "profile": {"title": "t", "key": "degrees", "unit": "°"},
            "orbit": {"degrees": value} if value else {},
            "evidence": {"value": evidence, "stderr": stderr},
            "metrics": {"error_rate": 0.1 if kind == "learned" else 0.2},
            "exact": exact,
        }

    return make


def test_the_exact_profile_judges_both(profiled: Any, failing: Any, tmp_path: Path) -> None:
    curve = {0.0: 100.0, 60.0: 190.0, 90.0: 200.0, 180.0: 110.0}
    fixed = [profiled("fixed" if angle else "none", angle, evidence) for angle, evidence in curve.items()]
    exact = [*fixed, profiled("learned", 93.0, 201.0), profiled("learned", 60.0, 198.0, start=45.0)]
    sparse = [
        *(
            profiled("fixed" if angle else "none", angle, evidence - angle, "sparse")
            for angle, evidence in curve.items()
        ),
        profiled("learned", 93.0, 50.0, "sparse", exact=200.5),
        profiled("learned", 78.0, 131.0, "sparse", start=45.0, exact=198.0),
    ]
    assert failing(profiles.check([*exact, *sparse])) == []
    claim = "t, {}: from every start at most 3 nats below the top of the exact profile"
    lower = [*sparse[:-1], sparse[-1] | {"exact": 197.9}]  # the top is 201, which was learned
    assert failing(profiles.check([*exact, *lower])) == [claim.format("sparse")]
    low = [*exact[:-1], profiled("learned", 90.0, 197.9, start=45.0)]
    assert failing(profiles.check(low)) == [claim.format("exact")]
    assert profiles.check(sparse) == {}  # without an exact profile nothing can be said
    unknown = [r | {"exact": None} for r in sparse]
    assert list(profiles.check([*exact, *unknown])) == [claim.format("exact")]
    text = profiles.table([*sparse, *exact])
    assert "| t | exact | 90° (200 nats) | 93° (+1.0 nats) | 60° (-2.0 nats) | +98 nats | 20.00 % | 10.00 % |" in text
    learned = "93° (-80.0 nats; exact -0.5) | 78° (+1.0 nats; exact -3.0)"
    assert f"| t | sparse | 60° (130 nats) | {learned} | +31 nats | 20.00 % | 10.00 % |" in text
    profiles.figure([*exact, *sparse], tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_small_version_is_held_to_a_share_of_the_gain(profiled: Any, failing: Any) -> None:
    none, top = profiled("none", 0.0, 100.0, max_seconds=1.0), profiled("fixed", 90.0, 200.0)
    assert failing(profiles.check([none, top, profiled("learned", 90.0, 192.0)])) == []
    assert len(failing(profiles.check([none, top, profiled("learned", 90.0, 190.0)]))) == 1


def test_errors_of_draws_stand_behind_differences(profiled: Any) -> None:
    known, drawn = profiled("none", 0.0, 100.0), profiled("fixed", 90.0, 200.0, stderr=3.0)
    text = profiles.table([known, drawn, profiled("learned", 93.0, 201.0, stderr=4.0)])
    assert "| 90° (200 nats) | 93° (+1.0 ± 5.0 nats) | +101 ± 4 nats |" in text


def test_other_starts_have_another_table(profiled: Any) -> None:
    here = [profiled("none", 0.0, 100.0), profiled("fixed", 90.0, 200.0), profiled("learned", 90.0, 200.0)]
    there = [
        r | {"profile": r["profile"] | {"title": "u"}}
        for r in (*here[:2], profiled("learned", 80.0, 199.0, start=45.0))
    ]
    first, second = profiles.table([*here, *there]).split("\n\n")
    assert ("from 5°" in first, "from 45°" in first) == (True, False)
    assert "| u | exact | 90° (200 nats) | 80° (-1.0 nats) |" in second


def test_what_sparse_inference_learned_is_judged_by_an_exact_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    run = rotated_digits.FULL[0].problem
    found = iter(
        [{"inference": "sparse", "orbit": {"degrees": 31.0}}, {"inference": "exact", "evidence": {"value": 7.0}}]
    )
    fits = []
    monkeypatch.setattr(DefaultFit, "measure", lambda self, device: fits.append(self) or next(found))
    learned = replace(run, inference="sparse", kind="learned", start=5.0, orbit=run.at(5.0, learn=True))
    assert learned.measure("cpu")["exact"] == 7.0
    assert (fits[1].inference, fits[1].orbit) == ("auto", "rotation(31.0, learn=False)")
    monkeypatch.setattr(DefaultFit, "measure", lambda self, device: {"inference": "sparse"})
    with pytest.raises(RuntimeError, match="no exact profile of digits rotated within ±0°"):
        run.measure("cpu")


@pytest.mark.slow
def test_profiles_through_the_command_line(tmp_path: Path) -> None:
    problem = rotated_digits.RotatedDigits(rotated=60.0, num_train=12, num_test=4, max_seconds=0.2)
    experiment = profiles.experiment("rotated_digits", "about", [], [Profile(problem, [90.0], [5.0])])
    claims = experiment.main(["--quick", "--out", str(tmp_path)])
    found = harness.load(tmp_path / "rotated_digits.jsonl").values()
    assert [r["settings"]["kind"] for r in found] == ["none", "fixed", "learned"] * 2
    assert [r["inference"] for r in found] == ["exact"] * 3 + ["sparse"] * 3
    assert {r["data"]["train"] for r in found} == {12}
    assert len(claims) == 2
    assert (tmp_path / "rotated_digits.png").exists()
    assert "| digits rotated within ±60° | sparse |" in tables.table("rotated_digits", tmp_path)
