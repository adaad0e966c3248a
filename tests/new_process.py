"""New processes for tests, forked from one that has imported everything and done nothing.

They know nothing of what the tests have done. A process that began with an empty memory would import for seconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

import joblib
import pytest

# The last one is imported by the first kernel that GPyTorch makes.
IMPORTED = ["orbitgp.comparison", "sklearn.datasets", "torch.distributed", "torch.fx.experimental.symbolic_shapes"]


def start(work: Callable[..., object], *arguments: object) -> BaseProcess:
    """A process that does this work. The function must be one that can be imported."""
    process: BaseProcess = _context().Process(target=work, args=arguments)  # type: ignore[attr-defined]
    process.start()
    return process


@contextmanager
def workers() -> Iterator[None]:
    """joblib's workers are such processes."""
    with pytest.MonkeyPatch.context() as patch, joblib.parallel_config("multiprocessing"):
        patch.setattr("joblib.parallel.DEFAULT_MP_CONTEXT", _context())
        yield


def _context() -> BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        pytest.skip("processes are forked")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context
