"""What tests of inference share."""

from __future__ import annotations

import pytest


@pytest.fixture
def fully_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local parameters and the posterior take turns until nothing moves."""
    monkeypatch.setattr("orbitgp.inference.fixed_point._NATS_OF_DATUM", 1e-14)
    for module in ("fixed_point", "dense_posterior"):
        monkeypatch.setattr(f"orbitgp.inference.{module}.MOST_TURNS", 3000)
