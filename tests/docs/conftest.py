"""Pages run on few data: what their models learn is not what these tests check."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbitgp import datasets


@pytest.fixture
def few_digits(monkeypatch):
    """``digits()`` gives 200 digits to learn from and 50 to test with."""
    whole = datasets.digits()
    few = replace(
        whole, x_train=whole.x_train[:200], y_train=whole.y_train[:200], x_test=whole.x_test[:50], y_test=whole.y_test[:50]
    )
    monkeypatch.setattr(datasets, "digits", lambda: few)
