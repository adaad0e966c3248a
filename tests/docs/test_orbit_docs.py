"""The examples of docs/reference/orbits.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "orbits.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_there_are_examples():
    assert len(BLOCKS) == 8


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[1][:40])
def test_the_example_runs(block):
    exec(compile(block, str(PAGE), "exec"), {})
