"""``orbitgp compare --backend``: the clusters of others, by their own joblib backends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

_SECONDS = 10  # to wait for a scheduler


@contextmanager
def cluster(backend: Literal["dask", "ray"] | None, scheduler: str | None) -> Iterator[None]:
    """Let joblib train on this cluster."""
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
