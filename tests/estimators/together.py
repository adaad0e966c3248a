"""Processes that share one run, as torchrun starts them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from tests import new_process

PATIENCE = 300  # seconds


def together(count: int, work: Callable[..., None], *arguments: object) -> list[int | None]:
    """So many processes do this work. Returns their exit codes: None of one that did not end."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder, "meeting").as_uri()
        processes = [new_process.start(_join, rank, count, meeting, work, *arguments) for rank in range(count)]
        for process in processes:
            process.join(PATIENCE)
        codes = [process.exitcode for process in processes]
        for process in processes:
            process.kill()
    return codes


def _join(rank: int, count: int, meeting: str, work: Callable[..., None], *arguments: object) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    work(*arguments)
