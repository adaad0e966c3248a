"""What holds for every test: shapes are checked, warnings are errors (pyproject.toml), randomness starts from a fixed seed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

# Before anything of orbitgp is imported: every shape annotation becomes an assertion.
install_import_hook("orbitgp", "beartype.beartype")

import numpy as np  # noqa: E402
import torch  # noqa: E402

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Every test starts from seed 0, whichever tests ran before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (scikit-learn draws from the global generator)
    return 0


@pytest.fixture
def double() -> Iterator[None]:
    """Tensors are float64 unless a test says otherwise."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
