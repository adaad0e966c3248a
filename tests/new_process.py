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
from joblib.externals.loky import get_reusable_executor

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


@contextmanager
def workers_of_loky() -> Iterator[None]:
    """Those of its own engine are forked from this process, and are its children. They must compute no gradients."""
    with pytest.MonkeyPatch.context() as patch:
        context = multiprocessing.get_context("fork")
        patch.setattr("joblib.externals.loky.process_executor.get_context", lambda: context)
        yield
        get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _context() -> BaseContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        pytest.skip("processes are forked")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context
