"""Fits that take less time, for tests that do not look at how good they are.

Sparse fits of a few steps take longer over what comes after these. Exact ones climb from several starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def one_start() -> Iterator[None]:
    """Ladders are climbed from where the model is, and from nowhere else."""
    from orbitgp.training.ladder import Ladder

    begin = Ladder.__post_init__

    def at_one(ladder: Ladder) -> None:
        ladder.several = False
        begin(ladder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ladder, "__post_init__", at_one)
        yield


@contextmanager
def short_ends() -> Iterator[None]:
    """The last posterior and the evidence of a sparse fit are of few passes and draws."""
    from orbitgp.estimators import evidence
    from orbitgp.training import stochastic_steps

    with pytest.MonkeyPatch.context() as patch:
        for name in ("EVIDENCE_SAMPLES", "LEAST_DRAWS"):
            patch.setattr(evidence, name, 4)
        for module in (evidence, stochastic_steps):
            patch.setattr(module, "MOST_PASSES", 2)
        yield
