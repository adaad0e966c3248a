"""What pages show below their Python, against what it prints: ``python -m tests.docs.shown`` runs them all, in minutes."""

from __future__ import annotations

import re
import sys
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SHARE = 0.2  # by which a number may differ from what is shown: another processor ends a little elsewhere
SMALL = 0.5  # less than this is no difference

_EXAMPLE = re.compile(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", flags=re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def examples(page: Path) -> list[tuple[str, str]]:
    """The Python of a page, block by block, each with the output that stands right below it; empty where none does."""
    return _EXAMPLE.findall(page.read_text(encoding="utf-8"))


def run(page: Path) -> list[str]:
    """Run the Python of a page as it stands, in this folder. Returns how its output differs from what is shown."""
    names: dict[str, Any] = {"__name__": "docs"}
    found = []
    for code, shown in examples(page):
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), names)
        found += differences(printed.getvalue(), shown) if shown else []
    return found


def differences(printed: str, shown: str) -> list[str]:
    """Lines that differ in their words, or in a number by more than a share of it. White space does not count."""
    ours, theirs = ([" ".join(line.split()) for line in text.splitlines() if line.strip()] for text in (printed, shown))
    if len(ours) != len(theirs):
        return ["\n".join([f"{len(theirs)} lines are shown, and these {len(ours)} are printed:", *ours])]
    return [f"shown:   {b}\nprinted: {a}" for a, b in zip(ours, theirs, strict=True) if not _alike(a, b)]


def _alike(a: str, b: str) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    numbers = ([float(text.replace(",", "")) for text in _NUMBER.findall(line)] for line in (a, b))
    return all(abs(x - y) <= max(SMALL, SHARE * max(x, y)) for x, y in zip(*numbers, strict=True))


def main() -> int:
    differ = False
    for page in PAGES:
        if any(shown for _, shown in examples(page)):
            with TemporaryDirectory() as folder, chdir(folder):
                found = run(page)
            print("\n".join([f"{page.stem}: {'differs' if found else 'as shown'}", *found]), flush=True)
            differ = differ or bool(found)
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
