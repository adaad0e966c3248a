"""Shapes are checked in every test, whatever the tests before it have called (conftest.py)."""

from __future__ import annotations

import os

import jaxtyping
import pytest
import torch

from orbitgp.kernels.cholesky import cholesky
from orbitgp.orbits import Identity
from orbitgp.training.starts import possible_starts

pytest.importorskip("beartype", reason="nothing can check shapes")
pytestmark = pytest.mark.skipif(os.environ.get("JAXTYPING_DISABLE") == "1", reason="shapes are not checked")


@pytest.mark.parametrize("test", range(5))
def test_a_wrong_shape_is_noticed(test: int) -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="cholesky"):
        cholesky(torch.ones(2, 3))


@pytest.mark.parametrize("test", range(5))
def test_a_shape_that_has_a_name_of_its_own_is_checked_too(test: int) -> None:
    with pytest.raises(jaxtyping.TypeCheckError, match="possible_starts"):
        possible_starts(Identity(), torch.ones(3, dtype=torch.int64))
