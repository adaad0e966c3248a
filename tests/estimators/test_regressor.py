"""Few rows: intervals cover, and a warning says that they were widened."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from orbitgp import InvariantGPRegressor


def draws(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test data from a GP of moderate lengthscale, in any units."""
    dim = rng.integers(1, 4)
    x = rng.uniform(size=(rows + 30, dim))
    length, noise = rng.uniform(0.3, 1.0) * np.sqrt(dim), 10 ** rng.uniform(-2, -0.5)
    covariance = np.exp(-0.5 * cdist(x, x, "sqeuclidean") / length**2) + 1e-9 * np.eye(len(x))
    f = np.linalg.cholesky(covariance) @ rng.normal(size=len(x))
    y = 50 + 7 * (f + np.sqrt(noise) * rng.normal(size=len(x)))
    return x[:rows], y[:rows], x[rows:], y[rows:]


@pytest.mark.slow
@pytest.mark.usefixtures("one_start")
def test_intervals_of_few_rows_cover() -> None:
    """At least 80 % of new observations lie within intervals of 90 %, on average over 12 data sets."""
    rng, inside = np.random.default_rng(0), []
    for rows in 4 * [2, 4, 10]:
        x, y, new, truth = draws(rng, rows)
        with pytest.warns(UserWarning, match=rf"few rows \({rows}\) hardly determine a kernel"):
            model = InvariantGPRegressor(random_state=0).fit(x, y)
        low, high = model.predict_quantiles(new, [0.05, 0.95]).T
        inside.append(np.mean((low < truth) & (truth < high)))
    assert np.mean(inside) > 0.8


def test_one_row_is_not_certain() -> None:
    with pytest.warns(UserWarning, match=r"few rows \(1\) hardly determine a kernel"):
        model = InvariantGPRegressor().fit([[0.0]], [3.5])
    mean, std = model.predict([[0.0], [1.0]], return_std=True)
    np.testing.assert_allclose(mean, 3.5)
    assert (std > 3.5).all()


def test_more_rows_are_left_as_they_are() -> None:
    x = np.linspace(0, 1, 11)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = InvariantGPRegressor(random_state=0).fit(x, np.sin(6 * x[:, 0]))
    std = model.predict(x, return_std=True)[1]
    low, high = model.predict_quantiles(x, [0.05, 0.95]).T
    np.testing.assert_allclose(high - low, 2 * 1.6448536 * std)
    assert (std < 0.1).all()
