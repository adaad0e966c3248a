"""Constant tables: made once for each precision, and fit for a backward pass wherever they were made first."""

from __future__ import annotations

import torch

from orbitgp.machine import constant


def test_made_once_for_each_precision():
    made = []

    @constant
    def table(size):
        made.append(size)
        return torch.arange(size, dtype=torch.float64)

    assert table(3) is table(3)
    assert table(3).dtype == torch.float64
    single = table(3, dtype=torch.float32, device=torch.device("cpu"))
    assert single.dtype == torch.float32
    assert single is table(3, dtype=torch.float32, device=torch.device("cpu"))
    table(4)
    assert made == [3, 3, 4]


def test_what_is_made_in_inference_mode_can_be_differentiated_later():
    @constant
    def table():
        return torch.ones(3, dtype=torch.float64)

    with torch.inference_mode():
        table()
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (weight * table()).sum().backward()
    assert weight.grad is not None
