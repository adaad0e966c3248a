"""What pages show below their code, against what it prints: ``python -m tests.docs.shown [PAGE ...]`` writes it anew.

A block of Python runs in the names of those before it. A block of commands runs where a page shows what it prints.
Pictures that a page saves as ``NAME.png`` are those of ``docs/pictures/NAME.png``.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PICTURES = DOCS / "pictures"
SHARE = 0.2  # by which a number may differ from what is shown: another processor ends a little elsewhere
SMALL = 0.5  # less than this is no difference

_EXAMPLE = re.compile(r"(```(python|sh)\n(.*?)```)(?:\n\n```\n(.*?)```)?", flags=re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_BETWEEN = re.compile(r" \([-+][\d,]+ to [-+][\d,]+\)")  # is said only where it is more than the rounding


def examples(page: Path) -> list[tuple[str, str]]:
    """The Python of a page, block by block, each with the output that stands right below it; empty where none does."""
    return [
        (found[3], found[4] or "")
        for found in _EXAMPLE.finditer(page.read_text(encoding="utf-8"))
        if found[2] == "python"
    ]


def run(page: Path) -> list[str]:
    """Run the code of a page as it stands, in this folder. Returns how its output differs from what is shown."""
    found: list[str] = []

    def compare(code: str, shown: str | None, printed: str) -> str:
        found.extend(differences(printed, shown) if shown is not None else [])
        return ""

    _each(page, compare)
    return found


def written(page: Path) -> str:
    """The page with what its code prints now."""
    return _each(page, lambda code, shown, printed: code if shown is None else f"{code}\n\n```\n{printed}```")


def _each(page: Path, change: Callable[[str, str | None, str], str]) -> str:
    """Run the code of a page in this folder, and change each example, given its code, what is shown and what is
    printed."""
    names: dict[str, Any] = {"__name__": "docs"}

    def example(found: re.Match[str]) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            if found[2] == "python":
                exec(compile(found[3], page.name, "exec"), names)
            elif found[4] is not None:
                for line in found[3].splitlines():
                    print(_typed(line), end="")
        lines = [line.rstrip() for line in printed.getvalue().rstrip().splitlines()]
        return change(found[1], found[4], "".join(f"{line}\n" for line in lines))

    return _EXAMPLE.sub(example, page.read_text(encoding="utf-8"))


def _typed(command: str) -> str:
    """What a command of ours prints on standard output."""
    from typer.testing import CliRunner

    from orbitgp.cli.app import app

    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, f"{command}: {done.output}"
    return done.stdout


def differences(printed: str, shown: str) -> list[str]:
    """Lines that differ in their words, or in a number by more than a share of it. White space does not count."""
    ours, theirs = (
        [" ".join(_BETWEEN.sub("", line).split()) for line in text.splitlines() if line.strip()]
        for text in (printed, shown)
    )
    if len(ours) != len(theirs):
        return ["\n".join([f"{len(theirs)} lines are shown, and these {len(ours)} are printed:", *ours])]
    return [f"shown:   {b}\nprinted: {a}" for a, b in zip(ours, theirs, strict=True) if not _alike(a, b)]


def _alike(a: str, b: str) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    numbers = ([float(text.replace(",", "")) for text in _NUMBER.findall(line)] for line in (a, b))
    return all(abs(x - y) <= max(SMALL, SHARE * max(x, y)) for x, y in zip(*numbers, strict=True))


def main() -> None:
    for page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        start = time.process_time()
        with TemporaryDirectory() as folder, chdir(folder):
            page.write_text(written(page), encoding="utf-8")
            for picture in Path(folder).glob("*.png"):
                shutil.copy(picture, PICTURES)
        print(f"{page.relative_to(DOCS.parent)}: {time.process_time() - start:.1f} CPU s", flush=True)


if __name__ == "__main__":
    main()
