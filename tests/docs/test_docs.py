"""The documentation: its site builds without a warning, its Python runs, and its commands are commands."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.shown import DOCS, PAGES, PICTURES, differences, examples, run

ROOT = Path(__file__).parents[2]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page)], ids=lambda page: str(page.relative_to(DOCS))
)
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m tests.docs.shown PAGE`` writes it anew."""
    for package in ("matplotlib", "pandas", "typer"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    assert run(page) == []
    for picture in tmp_path.glob("*.png"):
        assert (PICTURES / picture.name).is_file()


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("exact  ±93°, -8,087.8 nats\n", True),
        ("exact ±95°, -8,100.2 nats", True),
        ("exact ±93° (+90 to +94), -8,087.8 nats", True),
        ("exact ±60°, -8,087.8 nats", False),
        ("exact ±93°, -808.78 nats", False),
        ("exact ±93°, 8,087.8 nats", False),
        ("sparse ±93°, -8,087.8 nats", False),
        ("exact ±93°, -8,087.8 nats\nand more", False),
    ],
)
def test_output_is_compared_by_its_words_and_roughly_by_its_numbers(printed: str, same: bool) -> None:
    assert (differences(printed, "exact ±93°, -8,087.8 nats") == []) is same


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=str)
def test_the_commands_of_a_page_can_be_typed(page: Path) -> None:
    typer = pytest.importorskip("typer")
    from orbitgp.cli.app import app

    group = typer.main.get_command(app)
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("orbitgp ")]
    for line in lines:
        words = shlex.split(line.split(" > ")[0], comments=True)[1:]
        command = group.commands[words[0]]
        assert command.make_context(words[0], words[1:])


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the site needs the extra: pip install 'orbitgp[docs]'")
    pytest.importorskip("material", reason="the site needs the extra: pip install 'orbitgp[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in PAGES:
        assert (tmp_path / page.relative_to(DOCS).with_suffix(".html")).is_file()
    reference = (tmp_path / "reference" / "api" / "estimators.html").read_text(encoding="utf-8")
    assert "predict_proba" in reference
    assert ":class:" not in reference
    # Whoever reads the pages without a network misses nothing.
    fetched = re.findall(r'(?:<script[^>]* src|<link(?! rel="canonical")[^>]* href)="(https?://[^"]*)', reference)
    assert fetched == []
    # The pictures of results/ are there, each with a description, and those that are not drawn yet are missing without
    # a trace.
    results = (tmp_path / "notes" / "results.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img alt="([^"]*)" src="../(results/[^"]*)"', results)
    assert len(pictures) == len(re.findall("<img ", results)) >= 7
    assert all(len(alt) > 40 and (tmp_path / path).is_file() for alt, path in pictures)
    assert "../../results" not in results


@pytest.fixture
def hooks() -> Any:
    pytest.importorskip("mkdocs", reason="the site needs the extra: pip install 'orbitgp[docs]'")
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_shows_the_pictures_that_are_drawn(hooks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "RESULTS", tmp_path)
    (tmp_path / "toy.png").touch()
    page = "one\n\n![a (b)](../../results/toy.png)\n\n![c](../../results/later.png)\n\n[d](../../results/later.png)"
    assert hooks.on_page_markdown(page) == "one\n\n![a (b)](../results/toy.png)\n\n\n\n[d](../../results/later.png)"


def test_source_files_are_linked_at_the_home_of_the_project(hooks: Any) -> None:
    assert hooks.on_page_markdown("[`a`](../../src/b.py)") == f"[`a`]({hooks.HOME}/src/b.py)"


def test_an_option_does_not_break(hooks: Any) -> None:
    html = "<code>--max-data</code> <code>--max-data 100</code>"
    assert hooks.on_page_content(html) == '<code class="option">--max-data</code> <code>--max-data 100</code>'


def test_options_of_a_command_are_a_table(hooks: Any) -> None:
    table = hooks.on_page_markdown("a\n\n<!-- options: predict -->\n")
    assert "| `--out` | Write to this file (.csv or .json), not to the terminal. |" in table
    assert "| `RUN` | A run folder, or a model file. |" in table


def test_a_notebook_has_the_code_of_its_page(hooks: Any) -> None:
    page = DOCS / "tutorials" / "rotated-digits.md"
    cells = json.loads(hooks.notebook(page.read_text(encoding="utf-8")))["cells"]
    assert [cell["source"] + "\n" for cell in cells if cell["cell_type"] == "code"] == [
        code for code, _ in examples(page)
    ]
    text = [cell["source"] for cell in cells if cell["cell_type"] == "markdown"]
    assert text[0].startswith("# A notebook")
    assert not any("```" in part or "![" in part for part in text)


def test_python_fits_the_column_of_the_site() -> None:
    """A wider line would break there, and go on at the margin."""
    lines = {line: page.name for page in PAGES for code, _ in examples(page) for line in code.splitlines()}
    assert {line: page for line, page in lines.items() if len(line) > 88} == {}


def test_pages_are_short() -> None:
    """Guides, tutorials and explanations: 1,200 words each without their code, and 14,000 together with it."""
    pages = [page for page in PAGES if not {"notes", "reference"} & set(page.parts)]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    words = {name: len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) for name, text in texts.items()}
    assert {name: count for name, count in words.items() if count > 1200} == {}
    assert sum(len(text.split()) for text in texts.values()) <= 14_000
