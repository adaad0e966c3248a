"""Rotated MNIST, generated: a draw of digits without replacement, each turned."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import rotated_mnist
from experiments.rotated_mnist import rotated_mnist as generated
from orbitgp.datasets import Dataset


def test_it_is_a_rotated_draw_without_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 8, 8)).astype(np.float32), np.arange(30)
    monkeypatch.setattr(
        rotated_mnist, "mnist", lambda root: Dataset(x[:20], y[:20], x[20:], y[20:], name="", source="some")
    )
    still, turned, again = (generated(12, 15, seed=3, max_degrees=d) for d in (0.0, 180.0, 180.0))
    rows = np.concatenate([still.y_train, still.y_test])
    assert len(set(rows)) == 27
    np.testing.assert_array_equal(np.concatenate([still.x_train, still.x_test]), x[rows])
    np.testing.assert_array_equal(turned.y_test, still.y_test)
    np.testing.assert_array_equal(turned.x_test, again.x_test)
    assert np.abs(turned.x_train - still.x_train).mean() > 0.05
