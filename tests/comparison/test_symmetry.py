"""Symmetries that are found and not told: planted ones, none, and the groups that generators are joined into."""

from __future__ import annotations

import io
import sys
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

import orbitgp
from orbitgp.comparison.symmetry import Symmetry, default_generators, joined, likely_generators
from orbitgp.orbits import Identity, Permutation, SignChange


def target(planted: str, rows: int = 70, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    a, b, c = X.T
    functions = {
        "none": np.sin(2 * a) + 2 * b + np.cos(c + a) + 0.5 * c**3,
        "swap": np.sin(2 * (a + b)) + np.cos(a * b) + np.sin(2 * c) + c,
        "sign": np.cos(2 * a) + b + a**2 * np.tanh(c - b),
    }
    y = functions[planted]
    return X, y / y.std() + 0.05 * rng.normal(size=rows)


@pytest.mark.parametrize(("planted", "true"), [("none", set()), ("sign", {"sign(0)"})])
def test_planted_symmetries_are_found_and_others_are_not(planted: str, true: set[str]) -> None:
    X, y = target(planted)
    found = orbitgp.find_symmetry(X, y, ["swap(0, 1)", "sign(0)"])
    assert set(found.holds) == true
    assert not true & set(found.fails)
    assert sorted([*found.holds, *found.fails, *found.unknown]) == sorted(found.nats)
    assert found.needed == pytest.approx(-np.log(0.02 / 5))  # two alone and in part, and up to one join
    for name in found.holds:
        assert found.nats[name] > found.needed
        moved = found.orbit.elements(torch.from_numpy(X))[:, 1].numpy()
        np.testing.assert_allclose(found.model.predict(moved), found.model.predict(X), atol=1e-6)
    assert f"What holds: {', '.join(true) or 'nothing'}." in str(found)


def test_no_difference_is_negative_zero() -> None:
    found = Symmetry(Identity(), cast(Any, None), [], [], ["swap(0, 1)"], {"swap(0, 1)": -0.03}, 5.0)
    assert "swap(0, 1)      +0.0 nats" in str(found)


@pytest.mark.parametrize(("verbose", "bars"), [(True, 1), (None, 0), (False, 0)])
def test_all_fits_share_a_bar(verbose: bool | None, bars: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default there is none, since these take less than ten seconds."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    X, y = target("swap", rows=20)
    orbitgp.find_symmetry(X, y, ["swap(0, 1)", "sign(0)"], verbose=verbose, max_steps=5)
    assert shown.getvalue().count("\r0 %|") == bars
    assert "\n" not in shown.getvalue()


def test_few_data_cannot_tell() -> None:
    X, y = target("swap", rows=12)
    found = orbitgp.find_symmetry(X, y, ["swap(0, 1)"])
    assert found.unknown == ["swap(0, 1)"]
    assert type(found.orbit).__name__ == "Identity"


def test_settings_are_those_of_the_estimator_and_what_has_not_converged_is_no_evidence() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.sin(2 * X.sum(1))
    given = {"random_state": 5, "max_steps": 2, "likelihood": "gaussian"}
    found = orbitgp.find_symmetry(X, y, ["swap(0, 1)"], **given)
    assert {**found.model.get_params(), **given, "inference": "exact"} == found.model.get_params()
    assert not found.model.converged_
    assert found.unknown == ["swap(0, 1)"]  # no invariance might be anywhere above it
    assert found.nats["swap(0, 1)"] > found.needed


def test_generators_are_joined_into_the_group_that_they_generate() -> None:
    swaps = [Permutation.swap(0, 1), Permutation.swap(1, 3)]
    three = joined(swaps)
    assert three.size == 6
    both = joined([*swaps, SignChange(1)])  # the sign goes along with the columns: of 0, 1 and 3
    assert both.size == 48
    x = torch.arange(1.0, 5.0)[None]
    elements = {tuple(row) for row in both.elements(x)[0].tolist()}
    assert elements == {tuple(row) for one in both.elements(x)[0] for row in both.elements(one[None])[0].tolist()}
    assert len(elements) == 48
    assert joined([Permutation.cyclic(7), Permutation.swap(0, 1), SignChange(0)]) is None  # too large
    assert default_generators(["a", "b"]) == ["swap('a', 'b')", "sign('a')", "sign('b')"]
    assert {"cyclic(4)", "blocks(2, 2)"} < set(default_generators(range(4)))


def test_bad_input_in_one_sentence() -> None:
    X, y = target("none", rows=20)
    with pytest.raises(ValueError, match="takes a table"):
        orbitgp.find_symmetry(X[:, None], y)
    with pytest.raises(ValueError, match="generators must be finite orbits in words"):
        orbitgp.find_symmetry(X, y, ["noise"])


def test_generators_of_five_columns_are_of_two_and_three_columns_and_of_all() -> None:
    found = default_generators(list("abcd"))
    assert found[:6] == [f"swap({a!r}, {b!r})" for a, b in ("ab", "ac", "ad", "bc", "bd", "cd")]
    assert found[6:10] == [f"sign({a!r})" for a in "abcd"]
    assert found[10:14] == [f"cyclic({a!r}, {b!r}, {c!r})" for a, b, c in ("abc", "abd", "acd", "bcd")]
    assert found[14:] == ["cyclic(4)", "blocks(2, 2)"]


def test_likely_generators_exchange_columns_that_look_alike() -> None:
    """Two columns are alike, a third is one of their signs' mirror images, one is symmetric, and one has three
    values."""
    rng = np.random.default_rng(0)
    skewed = rng.exponential(size=(200, 2))
    x = np.column_stack([skewed, rng.normal(5.0, 1.0, 200), rng.normal(size=200), rng.integers(0, 2, 200)])
    assert likely_generators(x) in (["swap(0, 1)", "sign(3)"], ["sign(3)", "swap(0, 1)"])
    named = likely_generators(x, ["left", "right of it", "third", "fourth", "fifth"])
    assert set(named) == {"swap(left, 'right of it')", "sign(fourth)"}
    three = np.column_stack([rng.integers(0, 3, (200, 2))])
    assert likely_generators(three) == ["swap(0, 1)"]  # of three values, none of them below zero
    assert likely_generators(np.column_stack([three[:, 0], three[:, 0] + 0.5])) == []


@pytest.mark.parametrize(("by", "alike"), [(10.5, ["swap(0, 1)"]), (16.5, [])])
def test_columns_are_alike_that_the_test_of_kolmogorov_and_smirnov_cannot_tell(by: float, alike: list[str]) -> None:
    x = np.arange(1.0, 51.0)
    assert (ks_2samp(x, x + by).pvalue > 0.05) == bool(alike)
    assert likely_generators(np.column_stack([x, x + by])) == alike


def test_only_the_likeliest_generators_are_tried() -> None:
    x = np.random.default_rng(0).normal(size=(300, 6))
    assert len(likely_generators(x)) == 4
