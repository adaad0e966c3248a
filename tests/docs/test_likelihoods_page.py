"""The code in docs/likelihoods.md runs, and its tables say what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from orbitgp.likelihoods import gap_table

PAGE = Path(__file__).parents[2] / "docs" / "likelihoods.md"


def test_code_blocks_run() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["interval"][0].shape == (5, 3)
    assert names["probs"].sum() == pytest.approx(4.0)


def test_table_of_gaps() -> None:
    text = PAGE.read_text().replace("\N{MINUS SIGN}", "-")
    lines = re.findall(r"^\| ([\d.]+) \|((?: -[\d.]+ \([\d.]+\) \|){4})$", text, flags=re.MULTILINE)
    assert len(lines) == 5
    for variance, cells in lines:
        pairs = re.findall(r"(-[\d.]+) \(([\d.]+)\)", cells)
        for mean, (exact, gap) in zip((0.0, 1.0, 3.0, 6.0), pairs, strict=True):
            (row,) = gap_table(means=(mean,), variances=(float(variance),))
            assert row.exact == pytest.approx(float(exact), abs=6e-4)
            assert row.gap == pytest.approx(float(gap), abs=6e-4)
