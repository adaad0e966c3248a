"""Pages run on few data: what their models learn is not what these tests check."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from orbitgp import datasets
from orbitgp.comparison import refine
from orbitgp.training.ladder import Ladder

MOST_STEPS = 6


@pytest.fixture
def few_data(monkeypatch):
    """``digits()`` gives 60 digits to learn from and 50 to test with, ``movements()`` 20 movements. Nothing is refined.

    Exact inference takes few steps.
    """

    begin = Ladder.__post_init__

    def few_steps(ladder: Ladder) -> None:
        ladder.max_steps = min(ladder.max_steps or MOST_STEPS, MOST_STEPS)
        begin(ladder)

    monkeypatch.setattr(Ladder, "__post_init__", few_steps)
    whole = datasets.digits()
    few = replace(
        whole, x_train=whole.x_train[:60], y_train=whole.y_train[:60], x_test=whole.x_test[:50], y_test=whole.y_test[:50]
    )
    monkeypatch.setattr(datasets, "digits", lambda: few)
    monkeypatch.setattr(datasets, "movements", partial(datasets.movements, train=20, test=20))
    monkeypatch.setattr(refine, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(refine, "SHARE", 0.0)
