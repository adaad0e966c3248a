"""A clock for tests of limits, which an idle machine and a busy one keep alike."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass. No others do."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait
