"""Where predictions look: gradients of the mean against differences of predictions, and a function that sees one place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from orbitgp import InvariantGPRegressor, plotting
from orbitgp.orbits import Gain, TimeShift


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 12))
    return x, x[:, 4] + 0.01 * rng.normal(size=40)


def test_gradient_of_the_mean(data):
    x, y = data
    model = InvariantGPRegressor(TimeShift(0.4) * Gain(), mean="linear", num_samples=4, max_steps=3, random_state=0).fit(x, y)
    points = torch.tensor(x[:2])
    found = model.model_.mean_gradient(points)
    for t in (0, 5, 11):
        step = torch.zeros(12, dtype=torch.float64)
        step[t] = 1e-5
        high, low = (model.model_.predict(points + sign * step)[0] for sign in (1, -1))
        np.testing.assert_allclose(found[0, :, t], (high - low)[:, 0] / 2e-5, rtol=1e-5, atol=1e-7)


def test_the_place_that_matters_stands_out(data):
    pytest.importorskip("matplotlib")
    model = InvariantGPRegressor(None, random_state=0).fit(*data)
    heights = plotting.sensitivities(model, data[0][:10])
    assert heights.shape == (1, 12)
    assert heights[0].argmax() == 4
    assert heights[0, 4] > 5 * np.delete(heights[0], 4).max()


def test_sparse_models_have_none(data):
    model = InvariantGPRegressor(None, num_inducing=8, max_steps=2, random_state=0).fit(*data)
    with pytest.raises(ValueError, match="takes a model of exact inference"):
        plotting.sensitivities(model, data[0])
