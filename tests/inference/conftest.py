"""What tests of inference share."""

from __future__ import annotations

import pytest


@pytest.fixture
def fully_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local parameters and the posterior take turns until nothing moves."""
    monkeypatch.setattr("orbitgp.inference.fixed_point._TURNS", 3000)
    monkeypatch.setattr("orbitgp.inference.fixed_point._SETTLED", 1e-12)
    for module in ("dense_posterior", "collapsed"):
        monkeypatch.setattr(f"orbitgp.inference.{module}.FINE", 0.0)
