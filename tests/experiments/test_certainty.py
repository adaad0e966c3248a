"""The truth that the calibration battery believes in: closed forms, rotations by quarter turns, and densities of
scipy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from experiments import certainty
from experiments import certainty_truth as true
from experiments.certainty_data import smooth_gram
from orbitgp.cli.begin import _default_orbits


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_evidence_is_a_normal_density_with_the_best_constant(rng: Any) -> None:
    x, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    gram = true.noise_gram(x, 0.8, 2.0)
    constants = np.linspace(-2, 2, 2001)
    density = max(multivariate_normal(np.full(6, b), gram + 0.1 * np.eye(6)).logpdf(y) for b in constants)
    assert true.log_evidence(gram, true.Targets(y[:, None], 0.1)) == pytest.approx(density, abs=1e-5)


def test_a_mean_over_noisy_points_comes_to_the_closed_form(rng: Any) -> None:
    x = rng.normal(size=(5, 2))
    points = x[:, None] + 0.5 * rng.normal(size=(5, 3000, 2))
    lengthscale = np.array([0.8, 1.2])
    apart = ~np.eye(5, dtype=bool)  # a datum has the same draws twice
    found = true.orbit_gram(points, lengthscale, 2.0)
    assert np.allclose(found[apart], true.noise_gram(x, lengthscale, 2.0, 0.5)[apart], atol=0.05)


def test_quarter_turns_and_whole_shifts_are_exact(rng: Any) -> None:
    images, signals = rng.normal(size=(3, 8, 8)), rng.normal(size=(3, 9))
    turned = true.warped(images, true.affine_maps(np.array([0.0, np.pi / 2]))).reshape(3, 2, 8, 8)
    assert np.allclose(turned[:, 0], images)
    assert np.allclose(turned[:, 1], np.rot90(images, axes=(1, 2)))
    later = true.shifted(signals, np.array([2.0]))[:, 0]
    assert np.allclose(later[:, 2:], signals[:, :-2])
    assert np.allclose(later[:, :2], signals[:, :1])


def test_shared_draws_are_extrapolated_to_the_infinite_orbit(rng: Any) -> None:
    """Few shared draws of a wide noise under a short lengthscale have too much evidence or too little; the truth is
    known."""
    x = rng.normal(size=(12, 1))
    targets = true.Targets(rng.normal(size=(12, 1)), 0.3)
    kernel = 0.5, 3.0
    truth = true.log_evidence(true.noise_gram(x, *kernel, 0.7), targets)
    points = x[None, :, None] + 0.7 * rng.normal(size=(2, 1, 1000, 1))
    found = true.by_draws(points, *kernel, targets=targets)
    assert found.nats == pytest.approx(truth, abs=0.05 + 3 * found.error)
    assert found.error < 0.2


def test_kinds_take_turns() -> None:
    options = certainty.EXPERIMENT.parser().parse_args(["--parts", "null", "intervals", "--first", "5", "--seeds", "2"])
    problems = certainty.plan(options)
    assert [p.seed for p in problems] == [5] * 11 + [6] * 11
    assert len({(p.part, p.kind) for p in problems[:11]}) == 11


def records(part: str, kind: str, **said: list[bool | None]) -> list[dict[str, Any]]:
    """A record for each value."""
    settings = {"part": part, "kind": kind}
    each = [dict(zip(said, values, strict=True)) for values in zip(*said.values(), strict=True)]
    return [{"settings": settings, "seconds": 2.0, **values} for values in each]


def test_the_table_counts_what_is_known() -> None:
    found = records("null", "swap", false_support=[True, False, None])
    assert "| null | swap |  |  |  | 1 of 2 |  |  | 2 |" in certainty.table(found)


def test_claims_are_of_shares() -> None:
    held, missed = [True] * 19, [False]
    found = [
        *records("intervals", "affine", holds=held + missed),
        *records("null", "swap", false_support=missed * 18 + [True] * 2),
        *records("null", "noise", false_support=missed * 19 + [True]),
        *records("power", "swap", found=[True, True, None, True, False], wrong=[False, False, True, False, False]),
    ]
    assert list(certainty.check(found).values()) == [True, False, True, False, False]
    said = certainty.check(records("noise", "iris", certain=[False] * 4, holds=[True, True, True, False]))
    assert list(said.values()) == [True, False]


def test_an_open_end_holds_everything_on_its_side() -> None:
    assert certainty.finite(float("inf")) is None
    assert certainty.finite(-3.0) == -3.0


@pytest.mark.parametrize("kind", certainty.LISTS)
def test_lists_are_those_of_the_command_line(kind: str) -> None:
    data = SimpleNamespace(options=SimpleNamespace(signal=kind == "signals"), has_images=kind == "digits")
    assert list(certainty.LISTS[kind]) == _default_orbits("compare", data)


def test_support_of_any_orbit_of_a_list_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    """The targets do not know of the columns' order. With a swap planted among them, the same code finds support."""
    assert not certainty.solve_list("table", 0)["false_support"]
    monkeypatch.setattr(
        certainty, "smooth_gram", lambda x, rng: smooth_gram(np.concatenate([x, x[..., [1, 0, 2, 3]]], 1), rng)
    )
    monkeypatch.setattr(certainty, "likely_generators", lambda x: ["swap(0, 1)", "swap(2, 3)", "sign(0)", "sign(1)"])
    found = certainty.solve_list("table", 0)
    assert found["tied"] == ["swap(0,1)"]
    assert found["false_support"]
