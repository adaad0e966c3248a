"""The README's Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
@pytest.mark.usefixtures("few_data")
def test_block_runs(block: str) -> None:
    # The same lines with fewer steps: what they learn is not tested here.
    exec(compile(block.replace("random_state=0", "random_state=0, max_steps=3"), "README.md", "exec"), {"__name__": "readme"})


def test_readme_shows_the_two_commands_first() -> None:
    assert TEXT.index("make demo") < TEXT.index("make test") < TEXT.index("```python")
