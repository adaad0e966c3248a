"""Compact estimators, against the exact ones that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, datasets
from orbitgp.inference.model import InvariantGP
from orbitgp.orbits import Permutation

pytestmark = pytest.mark.usefixtures("one_start")


def table(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    return x, np.sin(x[:, 0]) + np.sin(x[:, 1]) + 0.1 * rng.normal(size=rows)


@pytest.fixture(scope="module")
def regressor() -> InvariantGPRegressor:
    return InvariantGPRegressor(Permutation.swap(0, 1), random_state=0, max_steps=20).fit(*table())


def test_one_variable_for_each_row_is_exact(regressor: Any) -> None:
    """With u = f(X), mean and standard deviation are those of the exact posterior; fewer points change more."""
    new = table(100)[0][60:]
    all_points, few = regressor.compact(60), regressor.compact(10)
    assert isinstance(all_points.model_, InvariantGP)
    for found, expected in zip(
        all_points.predict(new, return_std=True), regressor.predict(new, return_std=True), strict=True
    ):
        assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert all_points.compact_change_ < 1e-2 < few.compact_change_
    within = (
        np.abs(few.predict(table()[0]) - regressor.predict(table()[0]))
        / regressor.predict(table()[0], return_std=True)[1]
    )
    assert few.compact_change_ == pytest.approx(within.max(), rel=1e-6)


def test_draws_are_those_of_the_exact_model_also_from_a_file(tmp_path: Path) -> None:
    digits = datasets.digits()
    x, y = digits.x_train[:40], digits.y_train[:40]
    exact = InvariantGPClassifier("rotation", random_state=3, num_samples=4, max_steps=3).fit(x, y)
    compact = exact.compact(40)
    assert compact.model_.fixed_draws == (4, exact.model_.seed)
    new = digits.x_test[:100]
    # All four draws of every row, the same as in the data, are not the four of each inducing variable: close, not
    # equal.
    assert np.mean(compact.predict(new) != exact.predict(new)) < 0.1
    change = np.abs(compact.predict_proba(x) - exact.predict_proba(x)).max()
    assert compact.compact_change_ == pytest.approx(change, rel=1e-4)
    compact.save(tmp_path / "compact.safetensors")
    loaded = InvariantGPClassifier.load(tmp_path / "compact.safetensors")
    assert_array_equal(loaded.predict_proba(new), compact.predict_proba(new))
    assert loaded.compact_change_ == compact.compact_change_


def test_what_cannot_be_made_compact_is_said(regressor: Any) -> None:
    with pytest.raises(ValueError, match="has inducing variables already"):
        regressor.compact(10).compact(5)
    with pytest.raises(ValueError, match="points"):
        regressor.compact(0)
    with pytest.raises(ValueError, match="closed form"):
        InvariantGPRegressor("noise", random_state=0, max_steps=3).fit(*table(30)).compact()


def test_another_fit_forgets_the_change(regressor: Any) -> None:
    compact = regressor.compact(5)
    assert not hasattr(compact.fit(*table(30)), "compact_change_")
