"""More than one process: ``torchrun … -m orbitgp learn``, and ``orbitgp compare --backend``.

With torchrun, all processes load the same data, and each takes its own rows. The first one makes the run folder, prints, and
writes the report; the others say nothing and leave when the fits are done. Nothing here happens where there is one process.
Clusters of others train the models of a comparison, by their own joblib backends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

_SECONDS = 10  # to wait for a scheduler


def rank() -> int:
    """The number of this process, counted from 0, among those that torchrun has started."""
    return int(os.environ["RANK"]) if count() > 1 else 0


def count() -> int:
    """How many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def silence_others() -> None:
    """Let only the first process print."""
    if rank() > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


@contextmanager
def process_group() -> Iterator[None]:
    """Let the processes that torchrun has started reach each other."""
    if count() > 1:
        import torch
        import torch.distributed as dist

        if gpus := torch.cuda.device_count():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
    try:
        yield
    finally:
        leave()


def leave() -> bool:
    """Work alone from here on. Whether this is the first process, which has more to do."""
    if count() > 1:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    return rank() == 0


def own_rows(rows: np.ndarray) -> np.ndarray:
    """The rows of this process, of rows that all have."""
    if len(rows) < count():
        raise ValueError(f"{len(rows)} data cannot be shared by {count()} processes: start fewer.")
    start, end = (len(rows) * i // count() for i in (rank(), rank() + 1))
    return rows[start:end]


@contextmanager
def cluster(backend: Literal["dask", "ray"] | None, scheduler: str | None) -> Iterator[None]:
    """Let joblib train on this cluster, if there is one."""
    import joblib

    if backend is None:
        if scheduler is not None:
            raise ValueError("--scheduler says where a cluster is: say of which kind, with --backend dask or --backend ray.")
        yield
        return
    with _dask(scheduler) if backend == "dask" else _ray(scheduler), joblib.parallel_config(backend):
        yield


@contextmanager
def _dask(scheduler: str | None) -> Iterator[None]:
    if scheduler is None:
        raise ValueError("--backend dask needs the address of the scheduler, as in --scheduler tcp://10.0.0.1:8786.")
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--backend dask needs the package distributed: pip install 'dask[distributed]'.") from None
    try:
        client = Client(scheduler, timeout=_SECONDS)
    except (OSError, ValueError):
        raise ConnectionError(f"no Dask scheduler answers at {scheduler}: start one with the command dask scheduler.") from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise ConnectionError(f"the Dask scheduler at {scheduler} has no workers: start some with dask worker {scheduler}.")
        yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise ImportError("--backend ray needs the package ray: pip install ray.") from None
    try:
        ray.init(address=address or "auto", log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError):
        where = f"at {address}" if address else "on this machine"
        raise ConnectionError(f"no Ray cluster runs {where}: start one with ray start --head.") from None
    try:
        register_ray()
        yield
    finally:
        ray.shutdown()
