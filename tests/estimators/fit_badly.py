"""What each of two processes does that do not fit together: it writes what it was told in every case to a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from orbitgp import InvariantGPClassifier
from orbitgp.orbits import Rotation


def cases(rank: int) -> dict[str, Callable[[], Any]]:
    """What each case fits. The second process, 1, is the one that is wrong."""
    x, y = np.random.default_rng(rank).random((12, 8, 8)).astype(np.float32), np.arange(12) % 3

    def fit(x: Any = x, y: Any = y, **settings: Any) -> Any:
        given = {"num_inducing": 5, "num_samples": 4, "max_steps": 2, "random_state": 0, **settings}
        return InvariantGPClassifier(Rotation(20.0), **given).fit(x, y)

    with_nan = x.copy()
    with_nan[3, 2, 2] = np.nan
    return {
        "settings": lambda: fit(num_samples=4 + 2 * rank),
        "shape": lambda: fit(x[:, : 8 - rank]),
        "empty": lambda: fit(x[: 12 * (1 - rank)], y[: 12 * (1 - rank)]),
        "nan": lambda: fit(with_nan if rank else x),
        "lengths": lambda: fit(x, y[: 12 - rank]),
        "exact": lambda: fit(inference="exact", num_inducing=None),
        "good": lambda: fit(),
    }


def main(folder: Path) -> None:
    told = {}
    for name, case in cases(dist.get_rank()).items():
        try:
            case()
        except Exception as error:
            told[name] = f"{type(error).__name__}: {error}"
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(told))
