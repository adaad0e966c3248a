"""The README is short, shows the two commands first, and its Python prints what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shown import DOCS, run

PAGE = DOCS.parent / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_its_python_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(PAGE) == []


def test_it_shows_the_two_commands_first() -> None:
    assert TEXT.index("make demo") < TEXT.index("make test") < TEXT.index("```python")


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 120
