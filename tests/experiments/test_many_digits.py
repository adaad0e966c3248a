"""Deformed digits on disk are the same whenever they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from experiments.many_digits import write


def test_rounds_are_bytes_differ_and_can_be_repeated(tmp_path: Path) -> None:
    x = np.zeros((5, 12, 12), np.float32)
    x[:, 4:8, 3:9] = 1.0
    for folder in (tmp_path / "a", tmp_path / "b"):
        write(folder, x, 2, torch.device("cpu"))
    (first, second), again = ([np.load(path) for path in sorted((tmp_path / name).glob("*"))] for name in "ab")
    assert first.dtype == np.uint8
    assert first.shape == x.shape
    assert (first != second).any()
    assert abs(first.mean() / 255 - x.mean()) < 0.1
    np.testing.assert_array_equal([first, second], again)
